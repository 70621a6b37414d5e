"""Slots and their breaker: which Lease a repair takes, or the line that says why there is none."""

import pytest
from msgspec.structs import replace

from nodeagent.model.repairs import Ending, FaultSession, Outcome, Rung
from nodeagent.model.slots import CLUSTER, Domain, Holder, Slot
from nodeagent.model.upgrades import UpgradeEnding, UpgradePhase
from nodeagent.rules.repair.breaker import Breaker, count_open, note_result, read_breaker, render_breaker
from nodeagent.rules.repair.slots import (
    HELD_SECONDS,
    find_result,
    find_retry_seconds,
    find_slot,
    note_repair,
    note_slots,
    read_session,
    read_upgrade,
)
from tests.support.repairs import make_attempt, make_session, make_upgrade

RACK = Domain(key="example.com/rack", value="r1", slots=2)
ME = Holder(node="node-a", boot="one", work="7")
FREE = (Slot(number=0, version="1"), Slot(number=1, version="1"))
HELD = tuple(replace(slot, holder=f"node-{slot.number}/x/1/0", seconds=600.0) for slot in FREE)


def find(slots: tuple[Slot, ...], since: float = 0.0, now: float = 0.0, me: Holder = ME) -> tuple[Slot | None, str]:
    return find_slot(RACK, slots, me, note_slots(note_slots(None, slots, since), slots, now), now)


def stop(phase: int = 1, pause_seconds: float = 1800.0) -> Breaker:
    return Breaker(phase=phase, width=0, pause_seconds=pause_seconds)


def test_a_slot_has_one_name_by_label_and_number() -> None:
    """A name that the API server takes, other for other values; the cluster's domain has no value."""
    assert RACK.name_slot(1) == "nodeagent-repair-ef11a44f1197-1"
    assert RACK.name_slot(0) != replace(RACK, value="r2").name_slot(0)
    assert (str(RACK), str(Domain(key=CLUSTER, value="", slots=1))) == ("example.com/rack r1", "cluster")


def test_nodes_that_ask_together_ask_for_different_slots() -> None:
    chosen = {slot.number for node in "abcdef" if (slot := find(FREE, me=replace(ME, node=node))[0])}
    assert chosen == {0, 1}


def test_a_refusal_names_the_domain_and_who_holds_it_since_when() -> None:
    slot, why = find(HELD, now=300.0)
    assert slot is None
    assert why == "no slot of example.com/rack r1 is free: node-0, seen for 5 min; node-1, seen for 5 min"


def test_a_holder_has_vanished_when_its_renewal_stood_still_for_the_whole_time() -> None:
    assert find(HELD, now=599.0)[0] is None
    assert find(HELD, now=600.0)[0] in HELD
    renewed = tuple(replace(slot, renewed="later") for slot in HELD)
    assert find_slot(RACK, renewed, ME, note_slots(note_slots(None, HELD, 0.0), renewed, 600.0), 600.0)[0] is None


def test_a_session_takes_its_own_slot_over_after_its_reboot() -> None:
    """Though its domain is stopped; a slot of the node's other session is not the session's."""
    mine = (replace(HELD[0], breaker=render_breaker(stop())), replace(HELD[1], holder="node-a/before/7/0"))
    assert find(mine)[0] == mine[1]
    assert find((mine[0], replace(mine[1], holder="node-a/before/17/0")))[0] is None
    for holder in ("node-aa/before/7/0", "node-a/before/7/x", "node-a/before/7"):
        assert find((mine[0], replace(mine[1], holder=holder)))[0] is None


def test_a_person_suspends_a_domain_for_all() -> None:
    suspended = (replace(FREE[0], is_suspended=True), replace(FREE[1], holder=str(ME), seconds=600.0))
    assert find(suspended) == (None, "a person has suspended repairs in example.com/rack r1")


def test_a_stopped_domain_lets_one_probe_into_its_first_slot() -> None:
    stopped = (replace(FREE[0], breaker=render_breaker(stop())), FREE[1])
    refusal = "repairs in example.com/rack r1 are stopped: too many of the last were not proven"
    assert find(stopped, now=1799.0) == (None, refusal)
    assert find(stopped, now=1800.0) == (stopped[0], "")


def test_the_pause_counts_from_when_the_reader_saw_the_phase() -> None:
    """Writes of the slot's holder do not make it longer; the next stop has a pause of its own."""
    first, again = (replace(FREE[0], breaker=render_breaker(stop(phase))) for phase in (1, 2))
    seen = note_slots(note_slots(None, (first,), 0.0), (replace(first, version="9"),), 900.0)
    assert seen.phase.since_seconds == 0.0
    assert note_slots(seen, (again,), 900.0).phase.since_seconds == 900.0


def test_three_of_five_unproven_repairs_stop_a_domain() -> None:
    breaker = Breaker()
    for is_proven in (False, True, True, False, True, True, False, True):
        breaker = note_result(breaker, breaker.phase, is_proven=is_proven)
        assert count_open(breaker, 4, 0.0) == 4
    breaker = note_result(note_result(breaker, 0, is_proven=False), 0, is_proven=False)
    assert breaker == stop()


def test_a_stopped_domain_widens_from_one_to_two_to_all() -> None:
    widths = list[int]()
    breaker = stop()
    for _ in range(3):
        widths.append(count_open(breaker, 4, 1800.0))
        breaker = note_result(breaker, breaker.phase, is_proven=True)
    assert widths == [1, 2, 4]
    assert (breaker.pause_seconds, count_open(replace(breaker, width=2), 1, 0.0)) == (1800.0, 1)


def test_each_failed_probe_doubles_the_pause_up_to_eight_hours() -> None:
    breaker, pauses = stop(), list[float]()
    for _ in range(6):
        pauses.append(breaker.pause_seconds / 3600)
        breaker = note_result(breaker, breaker.phase, is_proven=False)
    assert pauses == [0.5, 1.0, 2.0, 4.0, 8.0, 8.0]
    half_open = note_result(stop(), 1, is_proven=True)
    assert note_result(half_open, half_open.phase, is_proven=False) == stop(3, 3600.0)


@pytest.mark.parametrize("is_proven", [True, False])
def test_a_stopped_domain_hears_nothing_of_repairs_from_before(is_proven: bool) -> None:
    assert note_result(stop(), 0, is_proven=is_proven) == stop()


def test_a_breaker_that_nobody_can_read_is_stopped_until_a_probe() -> None:
    assert read_breaker("") == Breaker()
    assert read_breaker(render_breaker(stop())) == stop()
    for text in ("yes", '{"phase": "one"}'):
        assert (count_open(read_breaker(text), 4, 0.0), count_open(read_breaker(text), 4, 1800.0)) == (0, 1)


def test_a_result_that_changes_nothing_is_not_written() -> None:
    """Five proven repairs fill the breaker; the sixth costs no write."""
    text, written = "", 0
    for _ in range(8):
        after = note_repair(replace(FREE[0], breaker=text), replace(FREE[1], holder=str(ME)), is_proven=True)
        written, text = written + (after != text), after
    assert written == 5


@pytest.mark.parametrize(
    ("session", "result"),
    [
        (replace(make_session(), ending=Ending.REPAIRED), True),
        (make_session(attempts=[make_attempt(began=200.0)]), False),
        (make_session(attempts=[make_attempt(began=50.0)]), None),
        (make_session(attempts=[make_attempt(began=200.0, outcome=Outcome.IN_USE)]), None),
        (make_session(attempts=[make_attempt(began=200.0, outcome=None)]), None),
        (replace(make_session(attempts=[make_attempt(began=200.0)]), ending=Ending.RECOVERED), False),
        (replace(make_session(attempts=[make_attempt(began=200.0)]), ending=Ending.JOINED), None),
        (make_session(), None),
    ],
)
def test_a_repair_is_judged_by_what_it_did_with_its_slots(session: FaultSession, result: bool | None) -> None:
    assert find_result(read_session(session), since_seconds=100.0) is result


def test_grave_and_old_work_asks_sooner() -> None:
    def find(rung: Rung, age: float, draw: float = 0.5) -> float:
        is_grave = read_session(make_session(rung=rung)).is_grave
        return find_retry_seconds(is_grave=is_grave, age_seconds=age, draw=draw)

    assert [find(Rung.RESET, 0.0, draw) for draw in (0.0, 1.0)] == [30.0, 90.0]
    assert find(Rung.REBOOT, 0.0) == find(Rung.RESET, 3600.0) == 30.0
    assert find(Rung.REBOOT, 3600.0) == 20.0
    assert HELD_SECONDS[Rung.RESET] < HELD_SECONDS[Rung.RELOAD_DRIVER] < HELD_SECONDS[Rung.REBOOT]


def test_an_upgrade_is_no_session_of_the_same_number() -> None:
    """Its holder says so, to the node itself and to whoever waits; a slot is held through a reboot."""
    work = read_upgrade(make_upgrade(number=7))
    mine = Holder(node="node-a", boot="one", work=work.name)
    assert (str(mine), work.held_seconds) == ("node-a/one/upgrade-7/0", 2700.0)
    held = (replace(FREE[0], holder=str(mine), seconds=600.0), HELD[1])
    why = "no slot of example.com/rack r1 is free: node-a for upgrade 7, seen for 5 min; node-1, seen for 5 min"
    assert find(held, now=300.0) == (None, why)
    assert find(held, me=replace(mine, boot="two"))[0] == held[0]


@pytest.mark.parametrize(
    ("ending", "result"),
    [(None, None), (UpgradeEnding.DONE, True), (UpgradeEnding.FAILED, False), (UpgradeEnding.ABORTED, None)],
)
def test_an_upgrade_is_judged_by_its_end(ending: UpgradeEnding | None, result: bool | None) -> None:
    ended = None if ending is None else 100.0
    upgrade = replace(make_upgrade(), ending=ending, ended_seconds=ended)
    assert find_result(read_upgrade(upgrade), since_seconds=50.0) is result


def test_an_upgrade_is_under_way_once_its_drain_is_over() -> None:
    """From then on a stopped domain lets it finish."""
    upgrade = make_upgrade()
    began = {phase: read_upgrade(replace(upgrade, phase=phase)).began_seconds is not None for phase in UpgradePhase}
    assert [phase for phase in UpgradePhase if not began[phase]] == [UpgradePhase.DRAIN]
