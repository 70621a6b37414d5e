"""Which ledger an agent begins with."""

import zlib

import pytest
from msgspec.structs import replace

from nodeagent.components.allocations.journal_format import encode_records
from nodeagent.components.allocations.ledger import FORMAT, Ledger, Opened, Record, replay
from nodeagent.components.allocations.recovery import Found, Recovered, merge_ledgers, recover_ledger
from nodeagent.components.allocations.roles.allocation_modes import AllocationModeSet
from nodeagent.components.allocations.roles.claims import Prepared
from nodeagent.components.allocations.roles.fractions import Reserved
from nodeagent.model.offering import AllocationMode
from tests.support.allocations import granted, make_entry
from tests.support.journals import bound, gpu, make_claim, make_part, make_reservation, make_seen, reserved, stepped


def journal(*records: Record, machine: str = "m", boot: str = "b") -> bytes:
    return encode_records([Opened(machine=machine, boot=boot), *records], 0)[0]


def recover(current: bytes | None, previous: bytes | None = None, *, boot: str = "b") -> Recovered:
    return recover_ledger(Found(current=current, previous=previous), "m", boot, 10)


def numbers(ledger: Ledger) -> list[int]:
    return list(ledger.entries)


def test_first_start_begins_empty() -> None:
    assert recover(None) == Recovered(ledger=Ledger())


def test_sound_journal_is_used() -> None:
    """The journal alone decides while it is sound."""
    recovered = recover(journal(granted(1, "a")), journal(granted(7, "z")))
    assert (numbers(recovered.ledger), recovered.damage, recovered.set_aside) == ([1], "", False)


def test_state_before_the_damage_is_used() -> None:
    """What was written before the damage counts, and the file is kept as evidence."""
    content = journal(granted(1, "a"), granted(2, "b"))
    recovered = recover(content[:-3], journal(granted(7, "z")))
    assert numbers(recovered.ledger) == [1]
    assert recovered.set_aside
    assert "record 3" in recovered.damage


@pytest.mark.parametrize("current", [b"", b"garbage\n", None])
def test_journal_before_steps_in(current: bytes | None) -> None:
    """Where nothing of the journal can be used the one before it is, and people are told."""
    recovered = recover(current, journal(granted(7, "z")))
    assert numbers(recovered.ledger) == [7]
    assert "the one before it is used" in recovered.damage
    assert recovered.set_aside is (current is not None)


@pytest.mark.parametrize("previous", [b"", b"garbage", None])
def test_nothing_usable_begins_empty_and_says_so(previous: bytes | None) -> None:
    """Two useless files are damage, not a crash."""
    recovered = recover(b"garbage", previous)
    assert numbers(recovered.ledger) == []
    assert recovered.damage
    assert recovered.set_aside


@pytest.mark.parametrize(("machine", "kept"), [("other", []), ("m", [1]), ("", [1])])
def test_journal_of_another_machine_is_not_used(machine: str, kept: list[int]) -> None:
    """A cloned disk brings allocations of GPUs that are not here."""
    recovered = recover(journal(granted(1, "a"), machine=machine))
    assert numbers(recovered.ledger) == kept
    assert recovered.set_aside is not bool(kept)


@pytest.mark.parametrize(("written", "kept"), [("ab" * 16, [1]), ("cd" * 16, []), ("gpu-node-1", [1])])
def test_a_node_named_where_its_id_was_not_seen_is_the_same_machine(written: str, kept: list[int]) -> None:
    """A pod that is allowed to see the host from now on finds an id, and one that no longer is does not."""
    before = Found(current=journal(granted(1, "a"), machine=written), previous=None)
    assert numbers(recover_ledger(before, "ab" * 16, "b", 10).ledger) == kept
    before = Found(current=journal(granted(1, "a"), machine="ab" * 16), previous=None)
    assert numbers(recover_ledger(before, "gpu-node-1", "b", 10).ledger) == [1]


def test_after_a_reboot_entries_prove_nothing() -> None:
    """Containers do not survive a reboot: entries stay, but no pod is defended because of them."""
    before = journal(granted(1, "a"))
    assert recover(before).ledger.entries[1] == make_entry(1, "a")
    assert recover(before, boot="next").ledger.entries[1] == make_entry(1, "a", seen_by="")


NEWER = encode_records([Opened(format=FORMAT + 1)], 0)[0]
UNKNOWN = journal(granted(1, "a")).replace(b"granted", b"awarded")


def reseal(content: bytes) -> bytes:
    """The lines of a journal with their texts as they are now, sound."""
    sealed, seal = b"", 0
    for line in content.splitlines():
        body = b"%08x %s\n" % (len(line) - 18, line[18:])
        seal = zlib.crc32(body, seal)
        sealed += b"%08x %s" % (seal, body)
    return sealed


@pytest.mark.parametrize(
    ("current", "previous", "words"),
    [
        (NEWER, None, f"it has format {FORMAT + 1}"),
        (NEWER, journal(granted(7, "z")), f"it has format {FORMAT + 1}"),
        (NEWER + b"torn", None, f"it has format {FORMAT + 1}"),
        (journal(granted(1, "a")), NEWER, "the one before it, whose name ends in .prev: it has format"),
        (None, NEWER, "the one before it, whose name ends in .prev: it has format"),
        (b"garbage", NEWER, "the one before it, whose name ends in .prev: it has format"),
        (reseal(UNKNOWN), journal(), "record 2 at byte"),
        (None, reseal(UNKNOWN), "the one before it, whose name ends in .prev: record 2 at byte"),
    ],
)
def test_what_a_later_version_wrote_is_neither_used_nor_touched(
    current: bytes | None, previous: bytes | None, words: str
) -> None:
    """Nothing may be begun, for that would replace it; the words say what is to be done."""
    recovered = recover(current, previous)
    assert recovered.refusal.startswith(words)
    assert recovered.refusal.endswith("upgrade the agent, or move the file away")
    assert (recovered.ledger, recovered.damage, recovered.set_aside) == (Ledger(), "", False)


def test_a_damaged_record_that_nobody_knows_is_damage() -> None:
    """Only a sound line proves that a later version wrote it."""
    recovered = recover(UNKNOWN)
    assert (recovered.refusal, recovered.set_aside) == ("", True)
    assert "checksum" in recovered.damage


def test_after_a_reboot_all_else_stands() -> None:
    """A kubelet of before the reboot is no proof any more; claims, changes and doors are what they were."""
    records: list[Record] = [
        reserved(1),
        reserved(2, "y"),
        bound(3, (1,)),
        Prepared(claim=make_claim("one", "a")),
        stepped(4, "plan"),
        AllocationModeSet(gpu=gpu("a"), door=AllocationMode.NONE, at_seconds=1.0),
    ]
    same, next_boot = recover(journal(*records)).ledger, recover(journal(*records), boot="next").ledger
    assert {one.kubelet_run for one in same.fractions.reservations.values()} == {"now"}
    assert {one.kubelet_run for one in next_boot.fractions.reservations.values()} == {""}
    assert next_boot.fractions.bindings == same.fractions.bindings
    assert (next_boot.claims, next_boot.changes, next_boot.doors) == (same.claims, same.changes, same.doors)


def test_what_was_learnt_without_the_journal_joins_it() -> None:
    """Both are known after; a promise that both have is one, and a container keeps the GPU that the journal names."""
    recovered = replay(
        [reserved(1, "x"), bound(2, (1,), make_part("a")), stepped(3, "plan"), Prepared(claim=make_claim("one", "a"))],
        10,
    )
    present = replay(
        [
            reserved(1, "x"),
            reserved(2, "y"),
            bound(3, (1,), make_part("b")),
            bound(4, (2,), make_part("c")),
            stepped(5, "plan", owner="mps"),
            Prepared(claim=make_claim("one", "b")),
            Prepared(claim=make_claim("other", "c")),
            AllocationModeSet(gpu=gpu("a"), door=AllocationMode.NONE, at_seconds=1.0),
        ],
        10,
    )
    joined = merge_ledgers(recovered, present, 10)
    assert sorted(joined.fractions.reservations) == [1, 5]
    assert {number: each.reservations for number, each in joined.fractions.bindings.items()} == {2: (1,), 7: (5,)}
    assert joined.fractions.bindings[2].parts == (make_part("a"),)
    assert {number: each.owner for number, each in joined.changes.items()} == {3: "mig", 8: "mps"}
    assert all(number == each.number for number, each in joined.changes.items())
    assert joined.claims == {"one": make_claim("one", "b"), "other": make_claim("other", "c")}
    assert (joined.doors, joined.next_number) == ({gpu("a"): AllocationMode.NONE}, 9)
    assert merge_ledgers(joined, Ledger(), 10) == joined


def test_another_answer_for_the_same_tokens_is_another_promise() -> None:
    """Only the name that was answered tells whether the kubelet asked once or twice."""
    recovered, present = (
        replay([Reserved(reservation=make_reservation(1, cdi_name=name))], 10) for name in ("fraction=1", "fraction=2")
    )
    assert sorted(merge_ledgers(recovered, present, 10).fractions.reservations) == [1, 2]


def test_faults_of_the_time_without_the_journal_stay_with_their_holdings() -> None:
    """By the numbers of the journal; of both times for a holding that the journal knows, the journal's first."""
    ledger = replay([granted(1, "a"), granted(2, "b")], 10)
    recovered = replace(ledger, faults={"2": (make_seen(48),)})
    present = replay(
        [granted(1, "b"), granted(2, "c"), reserved(3), bound(4, (3,)), Prepared(claim=make_claim("one", "d"))], 10
    )
    present = replace(present, faults={key: (make_seen(79),) for key in ("1", "2", "4", "one")})
    joined = merge_ledgers(recovered, present, 10)
    assert {key: [one.number for one in seen] for key, seen in joined.faults.items()} == {
        "2": [48, 79],
        "3": [79],
        "7": [79],
        "one": [79],
    }
    assert (sorted(joined.entries), list(joined.fractions.bindings)) == ([1, 2, 3], [7])
