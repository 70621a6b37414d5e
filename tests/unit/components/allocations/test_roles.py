"""What the records do that are about something else than whole devices, and what is refused before one is written."""

from collections.abc import Sequence

import pytest
from msgspec.structs import replace

from nodeagent.components.allocations.ledger import Ledger, Record, apply_record, open_record, replay
from nodeagent.components.allocations.roles.allocation_modes import AllocationModeSet, CordonsKept
from nodeagent.components.allocations.roles.changes import Finished
from nodeagent.components.allocations.roles.claims import Prepared, Unprepared
from nodeagent.components.allocations.roles.fractions import Released, refuse_binding
from nodeagent.components.allocations.roles.grants import Freed
from nodeagent.components.allocations.roles.repairs import SessionKept, UpgradeKept
from nodeagent.model.allocation import Allocation
from nodeagent.model.cordons import CordonSource
from nodeagent.model.ids import DeviceId, ResourceName
from nodeagent.model.journal import Binding, Change, Enforcement, FractionTable, GpuFraction
from nodeagent.model.offering import AllocationMode
from nodeagent.model.repairs import Attempt, Rung
from nodeagent.model.upgrades import UpgradePhase
from tests.support.allocations import granted
from tests.support.journals import (
    CORE,
    MEMORY,
    MIB,
    bound,
    gpu,
    kept,
    make_binding,
    make_claim,
    make_cordon,
    make_part,
    make_reservation,
    make_session,
    make_step,
    reserved,
    stepped,
)
from tests.support.repairs import make_upgrade


def released(number: int) -> Released:
    return Released(number=number, at_seconds=9.0, why="the pod has ended")


def after(*records: Record) -> Ledger:
    return replay(records, 10)


def fractions_of(*records: Record) -> tuple[list[int], dict[int, tuple[int, ...]]]:
    """The numbers of the reservations, and what each binding redeems."""
    found = after(*records).fractions
    return list(found.reservations), {number: each.reservations for number, each in found.bindings.items()}


TWO_RESERVED = (reserved(1, "x"), reserved(2, "y"))


@pytest.mark.parametrize(
    ("records", "reservations", "bindings"),
    [
        (TWO_RESERVED, [1, 2], {}),
        ([*TWO_RESERVED, bound(3, (1, 2))], [1, 2], {3: (1, 2)}),
        ([*TWO_RESERVED, released(1)], [2], {}),
        ([*TWO_RESERVED, bound(3, (1, 2)), released(3)], [], {}),
        ([*TWO_RESERVED, bound(3, (1, 2)), released(1)], [1, 2], {3: (1, 2)}),
        ([*TWO_RESERVED, bound(3, (1,)), bound(4, (2,)), released(3)], [2], {4: (2,)}),
        ([*TWO_RESERVED, bound(3, (1,)), bound(4, (1, 2))], [1, 2], {3: (1,)}),
        ([*TWO_RESERVED, released(1), bound(3, (1, 2))], [2], {}),
        ([reserved(1), bound(2, (7,))], [1], {}),
        ([reserved(1), bound(2, ())], [1], {}),
        ([reserved(1), released(1), reserved(1)], [], {}),
        ([reserved(1), bound(2, (1,)), released(2), reserved(3), bound(2, (3,))], [3], {}),
        ([reserved(1, "x"), reserved(2, "x")], [1, 2], {}),
        ([released(4)], [], {}),
    ],
    ids=[
        "reserved",
        "bound",
        "rolled back",
        "released with what it redeemed",
        "redeemed, so not rolled back",
        "others stay",
        "redeemed once",
        "gone before it was bound",
        "never reserved",
        "of nothing",
        "a number is used once",
        "a binding that has ended does not come back",
        "the tokens of an init container",
        "never there",
    ],
)
def test_reservations_and_bindings(
    records: Sequence[Record], reservations: list[int], bindings: dict[int, tuple[int, ...]]
) -> None:
    """A binding redeems living reservations, each once; what is released is gone, and stays gone."""
    assert fractions_of(*records) == (reservations, bindings)


def test_parts_that_have_ended_are_remembered_beside_whole_devices() -> None:
    """In the order of their ends, with why and over a new journal; what was rolled back nobody has had."""
    freed = Freed(number=4, at_seconds=8.0, why="given back")
    records: list[Record] = [
        *TWO_RESERVED,
        bound(3, (1, 2)),
        granted(4, "c"),
        reserved(5),
        freed,
        released(3),
        released(5),
    ]
    binding, ledger = make_binding(3, (1, 2)), after(*records)
    assert [(one.allocation.number, one.why) for one in ledger.history] == [(4, "given back"), (3, "the pod has ended")]
    ended = ledger.history[1]
    assert ended.until_seconds == 9.0
    assert ended.allocation == Allocation(
        number=3,
        resource=ResourceName(f"{CORE}, {CORE}"),
        devices=tuple(DeviceId(part.gpu) for part in binding.parts),
        since_seconds=binding.since_seconds,
        pod=binding.pod,
        container=binding.container,
    )
    assert after(open_record(ledger, "", "")).history == ledger.history
    assert [one.allocation.number for one in replay(records, 1).history] == [3]


def test_a_binding_is_told_anew_with_other_limits() -> None:
    """The limits of a running container change; its reservations and its GPUs do not."""
    known = make_binding(2, (1,))
    more = replace(known, parts=(make_part("a", 80),), enforcement=Enforcement.LIBRARY)
    ledger = after(reserved(1), bound(2, (1,)))
    told = [bound(2, (1,), make_part("b")), bound(2, (3,)), bound(2, (1,), make_part("a", -1))]
    for record in told:
        assert apply_record(ledger, record, 10).fractions.bindings == {2: known}
    assert apply_record(ledger, replace(told[0], binding=more), 10).fractions.bindings == {2: more}


def test_reservations_are_found_by_their_tokens_and_bindings_by_them() -> None:
    """As PreStartContainer asks: which reservation has exactly these, and is it bound?"""
    ledger = after(reserved(1, "xy"), reserved(2, "yx"), reserved(3, "x"), bound(4, (2,)))
    fractions = ledger.fractions
    devices = make_reservation(9, "xy").devices
    assert [one.number for one in fractions.find_reservations(CORE, devices)] == [1, 2]
    assert fractions.find_reservations(MEMORY, devices) == ()
    assert fractions.find_binding(1) is None
    assert fractions.find_binding(2) == make_binding(4, (2,))
    assert FractionTable(bindings=fractions.bindings).find_binding(2) == make_binding(4, (2,))


CAPACITIES = (make_part("a", 100, 1024), make_part("b", 100, 1024))
HALF_TAKEN = after(reserved(1), bound(2, (1,), make_part("a", 60, 768)), reserved(3)).fractions


@pytest.mark.parametrize(
    ("binding", "leaving", "words"),
    [
        (make_binding(4, (3,), make_part("a", 40, 256)), (), ""),
        (make_binding(4, (3,), make_part("a", 0, 0)), (), ""),
        (make_binding(4, (3,), make_part("a", 40, 256), make_part("b", 100, 1024)), (), ""),
        (make_binding(4, (3,), make_part("a", 41, 0)), (), "GPU-a has 40 of 100 cores left, not 41"),
        (make_binding(4, (3,), make_part("a", 1, 257)), (), "GPU-a has 256 MiB of 1 GiB left, not 257 MiB"),
        (make_binding(4, (3,), make_part("a", 100, 1024)), (2,), ""),
        (make_binding(2, (1,), make_part("a", 100, 1024)), (), ""),
        (make_binding(2, (1,), make_part("a", 101, 1024)), (), "GPU-a has 100 of 100 cores left, not 101"),
        (make_binding(4, (3,), make_part("c")), (), "nothing of GPU-c is given in parts"),
        (make_binding(4, (3,), make_part("a"), make_part("a")), (), "a binding has one part of each of its GPUs"),
        (make_binding(4, (3,), make_part("a", 1, -1)), (), "a part of a GPU is not negative"),
        (replace(make_binding(4, (3,)), parts=()), (), "a binding has one part of each of its GPUs"),
        (make_binding(4, (1,)), (), "reservation 1 is redeemed by binding 2"),
        (make_binding(4, (7,)), (), "there is no reservation 7"),
        (make_binding(4, (3, 3)), (), "a binding redeems reservations, each once"),
        (make_binding(2, (3,)), (), "binding 2 has other reservations"),
        (make_binding(2, (1,), make_part("b")), (), "binding 2 is on other GPUs"),
    ],
)
def test_what_is_refused_before_it_is_written(binding: Binding, leaving: tuple[int, ...], words: str) -> None:
    """No GPU is given out for more than it has, and the words say what is left of it."""
    assert refuse_binding(HALF_TAKEN, binding, CAPACITIES, leaving) == words


@pytest.mark.parametrize(
    ("part", "words"),
    [
        (make_part("a", 90, 512), ""),
        (make_part("a", 40, 700), ""),
        (make_part("a", 91, 512), "GPU-a has 10 of 100 cores left, not 91"),
        (make_part("a", 5, 769), "GPU-a has 256 MiB of 1 GiB left, not 769 MiB"),
    ],
)
def test_what_is_promised_over_its_size_can_be_made_smaller(part: GpuFraction, words: str) -> None:
    """Step by step; what asks for more of anything must fit, as everything else must."""
    over = after(
        reserved(1), bound(2, (1,), make_part("a", 90, 768)), reserved(3), bound(4, (3,), make_part("a", 90, 768))
    )
    assert refuse_binding(over.fractions, make_binding(4, (3,), part), CAPACITIES) == words


def test_what_runs_already_is_taken_in_even_where_it_is_too_much() -> None:
    """What was adopted is a fact: to leave it out would give the same memory away again."""
    ledger = after(reserved(1), bound(2, (1,), make_part("a", 90)), reserved(3), bound(4, (3,), make_part("a", 90)))
    assert ledger.fractions.sum_fractions(gpu("a")) == GpuFraction(gpu=gpu("a"), cores=180, memory_bytes=512 * MIB)
    assert ledger.fractions.sum_fractions(gpu("a"), {2}).cores == 90
    assert ledger.fractions.sum_fractions(gpu("b")) == GpuFraction(gpu=gpu("b"), cores=0, memory_bytes=0)


def test_claims_are_prepared_once_and_put_away() -> None:
    """A claim that is prepared again is as it was told last; one that was put away may come again."""
    one, other = make_claim("one", "a"), make_claim("other", "b", "c")
    again = make_claim("one", "b")
    away = Unprepared(uid="one", at_seconds=2.0, why="the last pod has ended")
    assert after(Prepared(claim=one), Prepared(claim=other)).claims == {"one": one, "other": other}
    assert after(Prepared(claim=one), Prepared(claim=again)).claims == {"one": again}
    assert after(Prepared(claim=one), away, away).claims == {}
    assert after(Prepared(claim=one), away, Prepared(claim=again)).claims == {"one": again}


def steps_of(*records: Record) -> dict[int, str]:
    return {number: "".join(step.name for step in each.steps) for number, each in after(*records).changes.items()}


SETTLED = Finished(number=1, at_seconds=5.0, outcome="done")


@pytest.mark.parametrize(
    ("records", "steps"),
    [
        ([stepped(1, "p"), stepped(1, "q")], {1: "pq"}),
        ([stepped(1, "p"), stepped(2, "q", on="b")], {1: "p", 2: "q"}),
        ([stepped(1, "p"), stepped(1, "p")], {1: "p"}),
        ([stepped(1, "p"), SETTLED], {}),
        ([stepped(1, "p"), SETTLED, stepped(1, "q")], {}),
        ([stepped(1, "p"), stepped(1, "q", owner="mps")], {1: "p"}),
        ([stepped(1, "p"), stepped(1, "q", on="b")], {1: "p"}),
        ([SETTLED], {}),
    ],
)
def test_steps_of_a_change_are_kept_until_it_is_settled(records: list[Record], steps: dict[int, str]) -> None:
    """A change has one owner and one GPU; each step stands once, and nothing is added to what is over."""
    assert steps_of(*records) == steps


def test_a_change_knows_all_that_its_owner_needs() -> None:
    """Whoever comes after a kill goes on with the payload of the last step."""
    known = Change(number=1, owner="mig", gpu=gpu("a"), steps=(make_step("plan", "7 x 1g"), make_step("drain")))
    first = replace(stepped(1, "plan"), step=make_step("plan", "7 x 1g"))
    assert after(first, stepped(1, "drain")).changes == {1: known}


def test_doors_are_set_and_left_to_the_configuration() -> None:
    """A GPU has the door that was set last."""

    def door(name: str, wanted: AllocationMode | None) -> AllocationModeSet:
        return AllocationModeSet(gpu=gpu(name), door=wanted, at_seconds=1.0)

    assert after(door("a", AllocationMode.NONE), door("b", AllocationMode.WHOLE)).doors == {
        gpu("a"): "none",
        gpu("b"): "whole",
    }
    assert after(door("a", AllocationMode.NONE), door("a", AllocationMode.CLAIMS)).doors == {gpu("a"): "claims"}
    assert after(door("a", AllocationMode.NONE), door("a", None), door("b", None)).doors == {}


def test_the_cordons_of_a_source_replace_those_of_the_source_alone() -> None:
    """Whoever lifts a cordon lifts nobody else's."""

    def of_source(source: CordonSource, *names: str) -> CordonsKept:
        return CordonsKept(source=source, cordons=tuple(map(make_cordon, names)), at_seconds=1.0)

    first, second = of_source(CordonSource.COMMAND, "a"), of_source(CordonSource.ANNOTATION, "a", "b")
    assert after(first, second).cordons == {
        CordonSource.COMMAND: (make_cordon("a"),),
        CordonSource.ANNOTATION: (make_cordon("a"), make_cordon("b")),
    }
    lifted = after(first, second, of_source(CordonSource.ANNOTATION), of_source(CordonSource.HAMI))
    assert lifted.cordons == {CordonSource.COMMAND: (make_cordon("a"),)}


def test_a_closed_session_is_remembered_as_long_as_its_attempts_count() -> None:
    """One without an attempt only among the newest; one with an attempt for seven days; an open one for ever."""
    days = 86400.0
    ledger = after(kept(1), *(kept(number, closed_seconds=2.0) for number in range(2, 70)))
    assert sorted(ledger.sessions) == [1, *range(6, 70)]
    attempt = Attempt(rung=Rung.RESET, boards=("1650",), boot="b", began_seconds=1.0, deadline_seconds=2.0)
    acted = replace(make_session(70, closed_seconds=3.0), attempts=(attempt,))
    ledger = after(SessionKept(session=acted, at_seconds=3.0), kept(71, at=6 * days))
    assert sorted(ledger.sessions) == [70, 71]
    ledger = after(SessionKept(session=acted, at_seconds=3.0), kept(71, at=7 * days + 4))
    assert sorted(ledger.sessions) == [71]
    assert sorted(after(SessionKept(session=acted, at_seconds=3.0), kept(71, at=8 * days), kept(70)).sessions) == [71]


def test_the_newest_upgrades_of_the_driver_are_remembered() -> None:
    """A record about one that was forgotten brings it not back."""
    records = [UpgradeKept(upgrade=make_upgrade(number=number)) for number in range(1, 11)]
    assert sorted(after(*records).upgrades) == list(range(3, 11))
    ended = make_upgrade(UpgradePhase.RESTORE, 3)
    assert after(*records, UpgradeKept(upgrade=ended), records[0]).upgrades[3] == ended


EVERYTHING: list[Record] = [
    granted(1, "a"),
    reserved(2, "x"),
    reserved(3, "y"),
    bound(4, (2,)),
    Prepared(claim=make_claim("one", "a")),
    stepped(5, "plan"),
    AllocationModeSet(gpu=gpu("b"), door=AllocationMode.FRACTIONS, at_seconds=1.0),
    CordonsKept(source=CordonSource.COMMAND, cordons=(make_cordon("a", 60.0),), at_seconds=1.0),
    kept(6),
    UpgradeKept(upgrade=make_upgrade(number=7)),
]


def test_a_journal_begun_anew_has_everything() -> None:
    """All that is given out and all that is under way is in the record that begins a journal."""
    ledger = after(*EVERYTHING)
    assert after(open_record(ledger, "machine", "boot")) == ledger
    assert (ledger.next_number, len(ledger.changes), len(ledger.doors), len(ledger.cordons)) == (8, 1, 1, 1)
    assert (ledger.sessions, ledger.upgrades) == ({6: make_session(6)}, {7: make_upgrade(number=7)})


def test_an_opening_begins_with_what_it_says_alone() -> None:
    """Whatever was known before it, in whichever role."""
    assert after(*EVERYTHING, open_record(Ledger(), "", "")) == Ledger()


def test_numbers_are_used_once_in_all_roles() -> None:
    """A number means one thing, whether an allocation, a reservation, a binding or a change."""
    assert after(granted(1, "a"), reserved(1)).fractions == FractionTable()
    assert after(stepped(3, "plan"), reserved(2)).fractions == FractionTable()
    assert after(reserved(1), bound(1, (1,))).fractions.bindings == {}
