"""Journals as they were written, kept as files: each version that comes after reads them, to the last record.

Those of format 1 were written by the last version that wrote it, together with what that version read from them. They
cannot be made anew; one of format 2 is held against what is written now.
"""

from pathlib import Path

import msgspec
import pytest

from nodeagent.components.allocations.journal_format import encode_records, parse_journal
from nodeagent.components.allocations.ledger import FORMAT, Ledger, Opened, Record, apply_records, open_record, replay
from nodeagent.components.allocations.recovery import Found, Recovered, recover_ledger
from nodeagent.components.allocations.roles.allocation_modes import AllocationModeSet, CordonsKept
from nodeagent.components.allocations.roles.changes import Finished
from nodeagent.components.allocations.roles.claims import Prepared, Unprepared
from nodeagent.components.allocations.roles.fractions import Bound, Released, Reserved
from nodeagent.components.allocations.roles.grants import Forgotten, Freed, Identified
from nodeagent.components.allocations.roles.repairs import SessionKept, UpgradeKept
from nodeagent.model.cordons import CordonSource
from nodeagent.model.ids import DeviceUuid, MigUuid
from nodeagent.model.journal import Enforcement, PreparedDevice
from nodeagent.model.offering import AllocationMode
from nodeagent.model.repairs import Attempt, Ending, Outcome, Rung
from nodeagent.rules.signals import Severity
from tests.support.allocations import granted, pod_named
from tests.support.files.golden import GOLDEN, check_golden
from tests.support.journals import (
    CORE,
    MEMORY,
    gpu,
    kept,
    make_binding,
    make_claim,
    make_cordon,
    make_part,
    make_reservation,
    make_seen,
    make_session,
    stepped,
)
from tests.support.repairs import make_upgrade

JOURNALS = GOLDEN / "journal"
OLD = sorted(path.stem for path in JOURNALS.glob("format1-*.journal"))


BRAKED = msgspec.structs.replace(make_cordon("e", 311.0), source=CordonSource.BRAKE, since_seconds=11.0, closings=2)


class Read(msgspec.Struct):
    """What the version that wrote a journal read from it."""

    damage: str
    ledger: Opened


def find_files(name: str) -> Found:
    def read(path: Path) -> bytes | None:
        return path.read_bytes() if path.exists() else None

    return Found(current=read(JOURNALS / f"{name}.journal"), previous=read(JOURNALS / f"{name}.journal.prev"))


def recover(found: Found) -> Recovered:
    return recover_ledger(found, "machine", "boot", 1000)


@pytest.mark.parametrize("name", OLD)
def test_a_journal_of_format_1_is_read_as_by_the_version_that_wrote_it(name: str) -> None:
    """Who holds what, the history, the next number, and what was damaged; and nothing that it did not know of."""
    read = msgspec.json.decode((JOURNALS / f"{name}.read.json").read_bytes(), type=Read)
    recovered = recover(find_files(name))
    assert (recovered.damage, recovered.refusal) == (read.damage, "")
    assert recovered.ledger == Ledger(
        entries={entry.allocation.number: entry for entry in read.ledger.entries},
        next_number=read.ledger.next_number,
        history=read.ledger.history,
    )


@pytest.mark.parametrize("name", OLD)
def test_a_journal_of_format_1_goes_on_as_one_of_this_format(name: str) -> None:
    """The journal is begun anew with all that it held, and takes the new records."""
    ledger = recover(find_files(name)).ledger
    content, seal = encode_records([open_record(ledger, "machine", "boot")], 0)
    assert b'"format":%d' % FORMAT in content
    assert recover(Found(current=content, previous=None)).ledger == ledger
    reservation = make_reservation(ledger.next_number)
    content += encode_records([Reserved(reservation=reservation)], seal)[0]
    assert recover(Found(current=content, previous=None)).ledger.fractions.reservations == {
        reservation.number: reservation
    }


def test_the_old_journals_have_all_that_there_was() -> None:
    """Every record of format 1, a withdrawn grant too, in more than one journal."""
    text = b"".join(path.read_bytes() for path in JOURNALS.glob("format1-*.journal*"))
    kinds = {"opened", "granted", "identified", "forgotten", "freed", "withdrawn"}
    assert {kind for kind in kinds if b'"type":"%s"' % kind.encode() in text} == kinds
    assert len(OLD) == 5


def make_every_record(*, of_today: bool = True) -> list[Record]:
    """Without cordons, faults, metadata files, sessions and upgrades where the records are those of earlier agents."""
    shared = PreparedDevice(
        requests=("gpu", "gpu/small"),
        pool="node",
        device="gpu-2-part",
        uuid=gpu("c"),
        cdi_names=("nvidia.com/gpu=claim-two",),
        part=make_part("c", 25, 1024),
        alternative="small" if of_today else "",
    )
    mig: DeviceUuid = MigUuid("MIG-5b1f4e0a-6a4c-5d3e-9a57-2f0c8f6a1b2c")
    cut = msgspec.structs.replace(shared, device="gpu-3-mig-1g", uuid=mig, part=None)
    two = msgspec.structs.replace(
        make_claim("two"),
        devices=(shared, cut),
        has_metadata=of_today,
        pod_claim_name="gpus" if of_today else "",
    )
    full = msgspec.structs.replace(
        make_binding(13, (11, 12), make_part("a", 30)),
        cdi_name="nvidia.com/fraction=11",
        enforcement=Enforcement.LIBRARY,
        confirmed_by=("pod_resources", "checkpoint"),
    )
    before: list[Record] = [
        granted(1, "a"),
        granted(2, "b"),
        granted(3, "a"),
        Reserved(reservation=make_reservation(4, "x", cdi_name="fraction=4")),
        Reserved(reservation=make_reservation(5, "m", resource=MEMORY)),
        Bound(binding=make_binding(6, (4,))),
        Prepared(claim=make_claim("one", "b")),
        stepped(7, "plan"),
        AllocationModeSet(gpu=gpu("b"), door=AllocationMode.CLAIMS, at_seconds=2.0),
        AllocationModeSet(gpu=gpu("d"), door=AllocationMode.NONE, at_seconds=2.5),
        CordonsKept(source=CordonSource.COMMAND, cordons=(make_cordon("a"),), at_seconds=2.6),
    ]
    acted = msgspec.structs.replace(
        make_session(15, closed_seconds=12.0),
        ending=Ending.REPAIRED,
        attempts=(
            Attempt(
                rung=Rung.RESET,
                boards=("1650",),
                boot="boot",
                began_seconds=10.0,
                deadline_seconds=610.0,
                outcome=Outcome.PROVEN,
                ended_seconds=12.0,
            ),
        ),
    )
    cordons: list[Record] = [
        CordonsKept(source=CordonSource.ANNOTATION, cordons=(make_cordon("d", 90.0),), at_seconds=9.0),
        CordonsKept(source=CordonSource.COMMAND, cordons=(), at_seconds=10.0),
        CordonsKept(source=CordonSource.BRAKE, cordons=(BRAKED,), at_seconds=11.0),
        kept(15, at=9.5),
        SessionKept(session=acted, at_seconds=12.0),
        kept(16, "b", at=13.0),
        UpgradeKept(upgrade=make_upgrade(number=17)),
    ]
    ledger = replay(before if of_today else before[:-1], 10)
    faults = {"3": (make_seen(79),), "one": (make_seen(31, severity=Severity.USER),)}
    return [
        open_record(msgspec.structs.replace(ledger, faults=faults) if of_today else ledger, "machine", "boot"),
        granted(8, "b"),
        Identified(number=8, pod=pod_named("train"), container="main", seen_by="now"),
        Forgotten(number=8),
        Freed(number=3, at_seconds=3.0, why="given back"),
        Reserved(reservation=make_reservation(11, "yz", cdi_name="fraction=11")),
        Reserved(reservation=make_reservation(12, "n", resource=MEMORY, kubelet_run="")),
        Bound(binding=full),
        Bound(binding=msgspec.structs.replace(full, parts=(make_part("a", 40, 512),))),
        Released(number=5, at_seconds=4.0, why="nobody asked for it again"),
        Released(number=6, at_seconds=4.5, why="the pod has ended"),
        Prepared(claim=two),
        Unprepared(uid="one", at_seconds=5.0, why="the last pod has ended"),
        stepped(7, "drain"),
        stepped(14, "plan", owner="mps", on="b"),
        Finished(number=14, at_seconds=6.0, outcome="done"),
        AllocationModeSet(gpu=gpu("a"), door=AllocationMode.FRACTIONS, at_seconds=7.0),
        AllocationModeSet(gpu=gpu("b"), door=None, at_seconds=8.0),
        *(cordons if of_today else ()),
    ]


def test_format_2_is_written_as_it_is() -> None:
    """What is written is what other versions will find: a change here is a change of format."""
    records = make_every_record()
    content = encode_records(records, 0)[0]
    check_golden("journal/format2-every-record.journal", content.decode())
    parsed = parse_journal((JOURNALS / "format2-every-record.journal").read_bytes())
    assert (list(parsed.records), parsed.damage, parsed.refusal) == (records, "", "")


def test_a_journal_of_format_2_with_fewer_words_is_read() -> None:
    """As an agent without metadata files, cordons, receipts and sessions wrote it; what is not said is as it was."""
    parsed = parse_journal((JOURNALS / "format2-fewer-words.journal").read_bytes())
    assert (list(parsed.records), parsed.damage, parsed.refusal) == (make_every_record(of_today=False), "", "")


def test_what_format_2_says_is_known_to_the_last_record() -> None:
    """The state after every kind of record, spelled out."""
    ledger = recover(find_files("format2-every-record")).ledger
    assert list(ledger.entries) == [8]
    assert [ended.allocation.number for ended in ledger.history] == [1, 2, 3, 6]
    assert [[fault.number for fault in ended.faults] for ended in ledger.history] == [[], [], [79], []]
    assert ledger.faults == {}
    assert sorted(ledger.fractions.reservations) == [11, 12]
    assert ledger.fractions.bindings[13].parts == (make_part("a", 40, 512),)
    assert [one.number for one in ledger.fractions.find_reservations(CORE, make_reservation(0, "yz").devices)] == [11]
    assert list(ledger.claims) == ["two"]
    assert {number: [step.name for step in each.steps] for number, each in ledger.changes.items()} == {
        7: ["plan", "drain"]
    }
    assert ledger.doors == {gpu("a"): AllocationMode.FRACTIONS, gpu("d"): AllocationMode.NONE}
    assert ledger.cordons == {CordonSource.ANNOTATION: (make_cordon("d", 90.0),), CordonSource.BRAKE: (BRAKED,)}
    assert {number: one.ending for number, one in ledger.sessions.items()} == {15: Ending.REPAIRED, 16: None}
    assert ledger.upgrades == {17: make_upgrade(number=17)}
    assert ledger.next_number == 18
    assert apply_records(ledger, make_every_record(), 10) == replay(make_every_record(), 10)
