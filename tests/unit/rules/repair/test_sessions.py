"""Sessions step by step: what opens, raises and closes them, over restarts and reboots."""

import pytest
from msgspec.structs import replace

from nodeagent.model.driver import DriverPhase, DriverState
from nodeagent.model.gpu import Inventory, StoredGpu
from nodeagent.model.health import DeviceHealth, FoundFault, HealthReport, Verdict
from nodeagent.model.remedies import Remedy
from nodeagent.model.repairs import Ending, FaultSession, Outcome, Rung
from nodeagent.rules.repair.findings import Findings, read_findings
from nodeagent.rules.repair.guard import WINDOW_SECONDS
from nodeagent.rules.repair.ladder import BUS_RESET_ACTION, RECOVERY_ACTION, climb, find_entry, skip_spent
from nodeagent.rules.repair.sessions import (
    Moment,
    apply_guard,
    begin_attempt,
    close_session,
    end_attempt,
    find_obstacles,
    resume_session,
    take_findings,
)
from nodeagent.rules.repair.settling import CEILING_SECONDS, Settling, note_poll
from tests.support.gpus import gpu_uuid, make_gpu, make_inventory, make_node
from tests.support.repairs import READY, find_faults, make_attempt, make_fault, make_report, make_session

NODE = make_node(4)
ONE, TWO, THREE = (Moment(now_seconds=seconds, boot=boot) for seconds, boot in ((1e6, "1"), (2e6, "2"), (3e6, "3")))
RESET, REBOOT = make_fault(), make_fault("xid-79", Remedy.POWER_CYCLE)


def take(
    known: tuple[FaultSession, ...], findings: Findings, moment: Moment = ONE, *, node: Inventory = NODE
) -> tuple[FaultSession, ...]:
    return take_findings({session.number: session for session in known}, findings, node, moment)


def test_a_fault_opens_a_session_where_it_points_and_its_end_closes_it() -> None:
    (opened,) = take((), find_faults(NODE, {2: (RESET,)}))
    assert (opened.number, opened.cause, opened.rung, opened.boot) == (0, "xid-119", Rung.RESET, "1")
    assert opened.uuids == {gpu_uuid(2)}
    kept = replace(opened, number=7)
    assert take((kept,), find_faults(NODE, {2: (RESET,)})) == ()
    (closed,) = take((kept,), find_faults(NODE, {}), TWO)
    assert (closed.ending, closed.closed_seconds) == (Ending.RECOVERED, TWO.now_seconds)
    assert take((closed,), find_faults(NODE, {})) == ()


@pytest.mark.parametrize(
    ("remedy", "rung"),
    [
        (Remedy.DRAIN_AND_RESET, Rung.DRAIN),
        (Remedy.RESET_GPU, Rung.RESET),
        (Remedy.REBOOT_NODE, Rung.REBOOT),
        (Remedy.POWER_CYCLE, Rung.REBOOT),
        (Remedy.SERVICE, Rung.SERVICE),
        (Remedy.RESTART_APPLICATION, None),
        (Remedy.CHECK_LINKS, None),
        (Remedy.WATCH, None),
    ],
)
def test_a_remedy_points_at_a_rung_or_at_none(remedy: Remedy, rung: Rung | None) -> None:
    """A driver that asks for a reset does not bring a GPU down from a reboot: the highest rung of all faults counts."""
    assert find_entry(make_fault(remedy=remedy), 1) is rung


def test_the_driver_may_ask_for_a_bus_reset() -> None:
    asks = make_fault(RECOVERY_ACTION, Remedy.REBOOT_NODE)
    assert find_entry(asks, BUS_RESET_ACTION) is Rung.BUS_RESET
    assert find_entry(asks, 7) is Rung.REBOOT
    assert find_entry(RESET, BUS_RESET_ACTION) is Rung.RESET


def test_a_gpu_off_the_bus_is_not_reset_whatever_its_driver_asks_for() -> None:
    asks = make_fault(RECOVERY_ACTION, Remedy.RESET_GPU)
    (opened,) = take((), find_faults(NODE, {0: (asks, make_fault("lost", Remedy.POWER_CYCLE))}))
    assert (opened.rung, opened.cause) == (Rung.REBOOT, "lost")


def test_of_a_gpu_and_its_mig_devices_the_highest_rung_counts() -> None:
    node = make_inventory([make_gpu(0, mig=("1g.10gb",))])
    gpu, mig = node.gpus[0].device_uuids
    devices = (
        DeviceHealth(device=gpu, gpu=gpu_uuid(0), verdict=Verdict.UNHEALTHY, since_seconds=0.0, findings=(RESET,)),
        DeviceHealth(
            device=mig,
            gpu=gpu_uuid(0),
            verdict=Verdict.UNHEALTHY,
            since_seconds=0.0,
            findings=(make_fault(remedy=Remedy.SERVICE),),
        ),
    )
    found = read_findings(HealthReport(generation=1, devices=devices), node, READY, {})
    assert [one.rung for one in found.evidence] == [Rung.SERVICE]


def test_a_later_fault_raises_a_session_and_a_milder_one_does_not_lower_it() -> None:
    (first,) = take((), find_faults(NODE, {0: (RESET,)}))
    (higher,) = take((replace(first, number=1),), find_faults(NODE, {0: (RESET, REBOOT)}))
    assert (higher.rung, [one.key for one in higher.evidence]) == (Rung.REBOOT, ["xid-119", "xid-79"])
    assert take((higher,), find_faults(NODE, {0: (RESET,)})) == ()


def test_a_fault_of_a_switch_joins_the_sessions_of_its_gpus() -> None:
    (first,) = take((), find_faults(NODE, {0: (RESET,)}))
    (second,) = take((), find_faults(NODE, {1: (REBOOT,)}))
    known = (replace(first, number=1), replace(second, number=2))
    sxid = make_fault("sxid-20034", Remedy.RESET_GPU)
    joined, gone = take(known, find_faults(NODE, {0: (RESET, sxid), 1: (REBOOT, sxid), 2: (sxid,)}))
    assert (joined.number, joined.rung) == (1, Rung.REBOOT)
    assert joined.uuids == {gpu_uuid(0), gpu_uuid(1), gpu_uuid(2)}
    assert (gone.number, gone.ending) == (2, Ending.JOINED)


def test_the_session_with_an_intent_takes_in_the_others() -> None:
    acting = make_session(2, 1, attempts=[replace(make_attempt(outcome=None, began=1e6, boot="1"), boards=("b",))])
    sxid = make_fault("sxid-20034", Remedy.RESET_GPU)
    known = (make_session(1, 0), acting)
    changed = {one.number: one for one in take(known, find_faults(NODE, {0: (sxid,), 1: (sxid,)}))}
    assert changed[1].ending is Ending.JOINED
    assert changed[2].is_open
    assert changed[2].under_way is not None


def test_no_session_closes_while_a_gpu_is_silent_or_the_driver_away() -> None:
    (opened,) = take((), find_faults(NODE, {0: (RESET,)}))
    kept = replace(opened, number=1)
    silent = FoundFault(key="no-answer", verdict=Verdict.UNKNOWN)
    assert take((kept,), find_faults(NODE, {0: (silent,)})) == ()
    away = DriverState(phase=DriverPhase.NOT_LOADED)
    found = read_findings(make_report(NODE, {}), NODE, away, {})
    assert take((kept,), found) == ()
    assert found.blind == "the driver is not ready: not_loaded"
    assert read_findings(None, NODE, READY, {}).blind


def test_the_session_of_a_gpu_that_is_gone_for_good_is_closed() -> None:
    """While the GPU is missed the session stays."""
    (opened,) = take((), find_faults(NODE, {3: (RESET,)}))
    kept, three = replace(opened, number=1), make_node(3)
    gone = StoredGpu(uuid=gpu_uuid(3), name="", index=3, address=NODE.gpus[3].pci.address, gone_since_seconds=1.0)
    assert take((kept,), find_faults(three, {}), node=replace(three, vanished=(gone,))) == ()
    (closed,) = take((kept,), find_faults(three, {}), node=three)
    assert closed.ending is Ending.REMOVED


@pytest.mark.parametrize(
    ("outcomes", "rungs"),
    [
        ((Outcome.FAILED, Outcome.FAILED), (Rung.RESET, Rung.REBOOT, Rung.SERVICE)),
        ((Outcome.UNKNOWN,), (Rung.RESET, Rung.REBOOT)),
        ((Outcome.UNSUPPORTED, Outcome.REFUSED), (Rung.RESET, Rung.BUS_RESET, Rung.RELOAD_DRIVER)),
        ((Outcome.REFUSED, Outcome.FAILED), (Rung.RESET, Rung.RELOAD_DRIVER, Rung.REBOOT)),
        ((Outcome.IN_USE, Outcome.IN_USE), (Rung.RESET, Rung.RESET, Rung.RESET)),
        ((Outcome.STOPPED,), (Rung.RESET, Rung.RESET)),
        ((Outcome.BROKEN,), (Rung.RESET, Rung.SERVICE)),
    ],
)
def test_a_session_climbs_by_the_outcome(outcomes: tuple[Outcome, ...], rungs: tuple[Rung, ...]) -> None:
    session, seen = make_session(), [Rung.RESET]
    for outcome in outcomes:
        session = end_attempt(begin_attempt(session, NODE, ONE, deadline_seconds=2e6), outcome, ONE, "said")
        seen.append(session.rung)
    assert tuple(seen) == rungs
    assert session.attempts[-1].detail == "said"
    assert climb(Rung.DRAIN, Outcome.FAILED) is Rung.RESET


def test_a_proof_closes_a_session_and_a_second_end_changes_nothing() -> None:
    done = end_attempt(begin_attempt(make_session(), NODE, ONE, deadline_seconds=2e6), Outcome.PROVEN, ONE, "")
    assert (done.ending, done.attempts[0].outcome) == (Ending.REPAIRED, Outcome.PROVEN)
    assert end_attempt(done, Outcome.FAILED, ONE, "") == done


def test_the_same_boot_makes_an_open_intent_a_failure() -> None:
    """A restart of the agent alone leaves every other session as it is."""
    begun = begin_attempt(make_session(boot="1"), NODE, ONE, deadline_seconds=2e6)
    resumed = resume_session(begun, ONE)
    assert (resumed.attempts[0].outcome, resumed.rung) == (Outcome.UNKNOWN, Rung.REBOOT)
    assert resume_session(resumed, ONE) == resumed


def test_a_requested_reboot_is_judged_after_the_boot() -> None:
    """By the findings once they have settled: gone is repaired, still there is the next rung."""
    begun = begin_attempt(make_session(rung=Rung.REBOOT, boot="1"), NODE, ONE, deadline_seconds=2e6)
    resumed = resume_session(begun, TWO)
    assert (resumed.boot, resumed.under_way) == ("2", begun.attempts[0])
    (well,) = take((resumed,), find_faults(NODE, {}), TWO)
    assert (well.ending, well.attempts[0].outcome) == (Ending.REPAIRED, Outcome.PROVEN)
    (ill,) = take((resumed,), find_faults(NODE, {0: (RESET,)}), TWO)
    assert (ill.rung, ill.attempts[0].outcome) == (Rung.SERVICE, Outcome.FAILED)
    again = resume_session(resumed, THREE)
    assert (again.boot, again.attempts) == ("3", resumed.attempts)


def test_a_reboot_by_another_hand_counts_for_the_session_and_not_for_the_guard() -> None:
    resumed = resume_session(make_session(boot="1"), TWO)
    assert [(one.rung, one.is_own, one.outcome) for one in resumed.attempts] == [(Rung.REBOOT, False, None)]
    (well,) = take((resumed,), find_faults(NODE, {}), TWO)
    assert (well.ending, well.attempts[0].outcome) == (Ending.RECOVERED, Outcome.PROVEN)
    (ill,) = take((resumed,), find_faults(NODE, {0: (RESET,)}), TWO)
    assert ill.rung is Rung.SERVICE
    assert ill.attempts[0].detail.startswith("the node was rebooted, and not by the agent's request; ")
    closed = close_session(resumed, Ending.JOINED, TWO)
    assert closed.attempts[0].outcome is Outcome.UNKNOWN
    assert resume_session(closed, THREE) == closed


def test_an_attempt_past_its_deadline_has_failed_and_one_before_keeps_the_session() -> None:
    begun = begin_attempt(make_session(boot="1"), NODE, ONE, deadline_seconds=ONE.now_seconds + 600)
    assert take((begun,), find_faults(NODE, {}), ONE) == ()
    assert take((begun,), find_faults(NODE, {0: (RESET,)}), ONE) == ()
    late = replace(ONE, now_seconds=ONE.now_seconds + 601)
    (failed,) = take((begun,), find_faults(NODE, {0: (RESET,)}), late)
    assert (failed.attempts[0].outcome, failed.rung) == (Outcome.UNKNOWN, Rung.REBOOT)
    assert take_findings({7: replace(begun, number=7)}, find_faults(NODE, {0: (RESET,)}), NODE, late, acting=7) == ()


@pytest.mark.parametrize(
    ("rung", "attempts", "expected"),
    [
        (Rung.RESET, [Rung.RESET], Rung.RESET),
        (Rung.RESET, [Rung.RESET, Rung.BUS_RESET], Rung.SERVICE),
        (Rung.RELOAD_DRIVER, [Rung.RESET, Rung.RESET], Rung.SERVICE),
        (Rung.REBOOT, [Rung.RESET, Rung.RESET], Rung.REBOOT),
        (Rung.REBOOT, [Rung.REBOOT, Rung.REBOOT], Rung.SERVICE),
        (Rung.DRAIN, [Rung.RESET, Rung.RESET], Rung.DRAIN),
    ],
)
def test_the_third_reset_or_reboot_is_service(rung: Rung, attempts: list[Rung], expected: Rung) -> None:
    """Over all sessions, for seven days."""
    past = replace(
        make_session(1, attempts=[make_attempt(one, began=1e6) for one in attempts]),
        ending=Ending.REPAIRED,
        closed_seconds=1e6,
    )
    session = make_session(2, rung=rung)
    now = Moment(now_seconds=1e6 + WINDOW_SECONDS - 1, boot="1")
    assert apply_guard(session, [past, session], NODE, now).rung is expected
    later = replace(now, now_seconds=1e6 + WINDOW_SECONDS)
    assert apply_guard(session, [past, session], NODE, later).rung is rung
    other = make_session(3, 1, rung=rung)
    is_of_gpu = rung in {Rung.RESET, Rung.DRAIN}
    assert not is_of_gpu or apply_guard(other, [past, other], NODE, now).rung is rung


@pytest.mark.parametrize(
    ("seen", "now", "is_news"),
    [
        (1e6 + 5, 1e6 + 100, False),
        (1e6 + 20, 1e6 + 100, True),
        (9e5 - 5, 9e5, True),
        (1e6 + 5, 9e5, False),
    ],
    ids=["of before the repair", "of after it", "after the clock was set back", "of before it was set back"],
)
def test_evidence_of_before_the_last_repair_opens_nothing(seen: float, now: float, *, is_news: bool) -> None:
    attempt = replace(make_attempt(began=1e6), ended_seconds=1e6 + 10)
    past = replace(make_session(1, attempts=[attempt]), ending=Ending.REPAIRED, closed_seconds=1e6 + 10)
    found = find_faults(NODE, {0: (replace(RESET, seen_seconds=seen),)})
    assert bool(take((past,), found, replace(ONE, now_seconds=now))) is is_news


def test_a_serial_number_is_counted_where_the_board_has_one() -> None:
    """A GPU with another UUID on the same board has the board's count."""
    node = make_inventory([replace(make_gpu(0), serial="1650")])
    (opened,) = take((), find_faults(node, {0: (RESET,)}), node=node)
    assert opened.gpus[0].board == "1650"
    past = make_session(1, attempts=[replace(make_attempt(began=1e6 - 1), boards=("1650",)) for _ in range(2)])
    known = replace(past, ending=Ending.REPAIRED, closed_seconds=1e6, gpus=())
    (opened,) = take((known,), find_faults(node, {0: (replace(RESET, seen_seconds=1e6 + 100),)}), node=node)
    assert opened.rung is Rung.SERVICE


def test_obstacles_say_what_keeps_an_act_back() -> None:
    def obstacles(
        session: FaultSession, *others: FaultSession, holders: tuple[str, ...] = (), left: bool = False
    ) -> tuple[str, ...]:
        every = (session, *others)
        return find_obstacles(session, every, NODE, ONE, holders=holders, has_holder_left=left)

    assert obstacles(make_session()) == ()
    assert obstacles(make_session(rung=Rung.SERVICE)) == ("service is a person's work",)
    assert obstacles(make_session(), make_session(2, 1, Rung.REBOOT)) == ("session 2 comes first",)
    assert obstacles(make_session(), make_session(2, 1)) == ()
    acting = make_session(2, 1, attempts=[make_attempt(outcome=None)])
    assert obstacles(make_session(), acting) == ("the attempt of session 2 has not ended",)
    assert obstacles(make_session(), holders=("team/train",)) == ("the GPUs are held by team/train",)
    assert obstacles(make_session(rung=Rung.DRAIN), holders=("team/train",)) == ()
    refused = make_session(attempts=[make_attempt(outcome=Outcome.IN_USE)])
    assert obstacles(refused) == ("the process that refused the last attempt was not seen to leave",)
    assert obstacles(refused, left=True) == ()
    stopped = make_session(attempts=[replace(make_attempt(outcome=Outcome.STOPPED, boot="1"), detail="no root")])
    assert obstacles(stopped) == ("the last attempt ended by the agent's own fault: no root",)
    spent = make_session(2, attempts=[make_attempt(began=1e6)] * 2)
    assert obstacles(make_session(), replace(spent, ending=Ending.REPAIRED)) == (
        "a GPU was reset 2 times within 7 days",
    )


def test_evidence_of_a_gpu_that_is_not_in_the_inventory_opens_nothing() -> None:
    assert take((), find_faults(NODE, {3: (RESET,)}), node=make_node(2)) == ()


def test_blind_polls_do_not_settle_and_the_ceiling_ends_the_wait() -> None:
    settling = Settling(since_seconds=0.0, polls_first=0)
    assert settling.describe().endswith("0 of 3 equal polls")
    blind = read_findings(make_report(NODE, {}), NODE, DriverState(phase=DriverPhase.NOT_LOADED), {})
    for now in range(1, 10):
        settling = note_poll(settling, blind, float(now))
    assert settling.describe().endswith("for 600 s at most: the driver is not ready: not_loaded")
    settling = note_poll(settling, blind, CEILING_SECONDS)
    assert (settling.is_settled, settling.is_timed_out, settling.describe()) == (True, True, "")
    assert note_poll(settling, find_faults(NODE, {}), CEILING_SECONDS + 1) == settling


def test_a_rung_that_was_taken_is_not_taken_again() -> None:
    """A reset that failed, and a reboot that did: service is left; a refusal for a process has taken nothing."""
    failed = [make_attempt(Rung.RESET), make_attempt(Rung.REBOOT)]
    assert skip_spent(make_session(rung=Rung.RESET, attempts=failed)) is Rung.SERVICE
    assert skip_spent(make_session(rung=Rung.RESET, attempts=failed[:1])) is Rung.REBOOT
    assert skip_spent(make_session(rung=Rung.RESET, attempts=[make_attempt(outcome=Outcome.IN_USE)])) is Rung.RESET
