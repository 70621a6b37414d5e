"""The end of a reset in words and numbers, what mode act leaves to others, and what the polls after an act prove."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec.structs import replace

from nodeagent.model.allocation import PodIdentity
from nodeagent.model.cluster import ClusterNode
from nodeagent.model.gpu import ComputeMode, Mig
from nodeagent.model.repairs import Ending, Outcome, Rung, ToolAnswer
from nodeagent.rules.repair.acts import Reach, is_request_stale, judge_proof, refuse_act, take_reading
from nodeagent.rules.repair.outcomes import PutBack, Reading, find_changed, keep_settings, read_answer
from nodeagent.rules.repair.plans import plan_sessions
from nodeagent.rules.repair.sessions import Moment, begin_attempt
from nodeagent.rules.signals import Hold
from tests.fakes.nvidia_smi.answers import ANSWERS, PEERS
from tests.support.examples import examples
from tests.support.gpus import gpu_uuid, make_gpu, make_node
from tests.support.repairs import find_faults, make_attempt, make_fault, make_session

NODE, NOW = make_node(4), Moment(now_seconds=1e6, boot="one")
RUNGS = st.sampled_from(Rung)


@pytest.mark.parametrize("name", [name for name, one in ANSWERS.items() if not one.hangs])
def test_each_known_answer_has_its_class(name: str) -> None:
    known = ANSWERS[name]
    found = read_answer(ToolAnswer(code=known.code, said=known.said), Rung.RESET)
    assert found.outcome == known.outcome
    assert found.peers == (PEERS if known.outcome is Outcome.INCOMPLETE else ())


@given(code=st.one_of(st.none(), st.integers(-64, 300)), said=st.text(max_size=80), rung=RUNGS)
@settings(max_examples=examples(100))
def test_no_answer_but_an_exit_code_of_0_leads_to_the_proof(code: int | None, said: str, rung: Rung) -> None:
    """No answer is a success, and none without an exit code is more than unknown."""
    found = read_answer(ToolAnswer(code=code, said=said), rung)
    assert (found.outcome is None) == (code == 0)
    assert found.outcome is not Outcome.PROVEN
    assert code is not None or found.outcome is Outcome.UNKNOWN


def test_a_program_without_a_bus_reset_leads_to_the_next_rung() -> None:
    answer = ToolAnswer(code=2, said="Option bus is not recognized")
    assert read_answer(answer, Rung.BUS_RESET).outcome is Outcome.UNSUPPORTED
    assert read_answer(answer, Rung.RESET).outcome is Outcome.STOPPED
    assert answer.describe() == "exit code 2: Option bus is not recognized"
    assert ToolAnswer(code=None, said="no end within 5 s").describe() == "no end within 5 s"


def test_a_refusal_widens_the_session_by_the_gpus_that_it_names() -> None:
    """It is no attempt; one that names no further GPU is a refusal for good."""
    begun = begin_attempt(make_session(), NODE, NOW, deadline_seconds=2e6)
    refused = Reading(outcome=Outcome.INCOMPLETE, detail="append 1, 2", peers=(0, 1, 2))
    wider = take_reading(begun, refused, NODE, NOW)
    assert wider.uuids == {gpu_uuid(0), gpu_uuid(1), gpu_uuid(2)}
    assert (wider.rung, wider.attempts[0].counts) == (Rung.RESET, False)
    again = take_reading(begin_attempt(wider, NODE, NOW, deadline_seconds=2e6), refused, NODE, NOW)
    assert (again.uuids, again.rung, again.attempts[1].outcome) == (wider.uuids, Rung.RELOAD_DRIVER, Outcome.REFUSED)
    failed = take_reading(begun, Reading(outcome=Outcome.FAILED), NODE, NOW)
    assert failed.rung is Rung.REBOOT
    assert take_reading(begun, Reading(outcome=None), NODE, NOW) == begun


@given(peers=st.lists(st.lists(st.integers(0, 9), max_size=4), max_size=12))
@settings(max_examples=examples(60))
def test_a_reset_is_refused_for_its_peers_no_more_often_than_there_are_gpus(peers: list[list[int]]) -> None:
    session, refused = make_session(), 0
    for named in peers:
        if session.rung is not Rung.RESET:
            break
        begun = begin_attempt(session, NODE, NOW, deadline_seconds=2e6)
        session = take_reading(begun, Reading(outcome=Outcome.INCOMPLETE, peers=tuple(named)), NODE, NOW)
        refused += session.rung is Rung.RESET
    assert refused < len(NODE.gpus)


@pytest.mark.parametrize(
    ("rung", "reach", "holders", "reasons"),
    [
        (Rung.RESET, Reach(), (), ()),
        (Rung.DRAIN, Reach(), (), ()),
        (Rung.DRAIN, Reach(), ("team/train",), ("the GPUs are held by team/train",)),
        (Rung.BUS_RESET, Reach(), (), ("rung bus_reset is above `repairs.up_to`: reset",)),
        (Rung.BUS_RESET, Reach(up_to=Rung.REBOOT), (), ()),
        (
            Rung.RELOAD_DRIVER,
            Reach(up_to=Rung.REBOOT),
            (),
            ("the agent reloads only a driver of the host: reload the driver by hand, or reboot the node",),
        ),
        (Rung.RELOAD_DRIVER, Reach(up_to=Rung.RELOAD_DRIVER, can_reload=True), (), ()),
        (
            Rung.REBOOT,
            Reach(up_to=Rung.REBOOT),
            (),
            ("no channel for a reboot is configured: `repairs.reboot_by` is none",),
        ),
        (Rung.REBOOT, Reach(up_to=Rung.REBOOT, reboot_by="command"), (), ()),
    ],
)
def test_what_mode_act_leaves_to_others(
    rung: Rung, reach: Reach, holders: tuple[str, ...], reasons: tuple[str, ...]
) -> None:
    assert refuse_act(make_session(rung=rung), holders, reach, NODE) == reasons


def test_a_gpu_that_the_driver_does_not_list_is_not_reset() -> None:
    """Another GPU may sit at its address; a reboot needs no address."""
    gone, reach = make_session(index=7), Reach(up_to=Rung.REBOOT, reboot_by="command")
    assert refuse_act(gone, (), reach, NODE) == ("GPU 7 is not listed by the driver",)
    assert refuse_act(replace(gone, rung=Rung.REBOOT), (), reach, NODE) == ()


def test_a_plan_of_mode_act_says_the_first_obstacle_or_that_it_is_about_to_act() -> None:
    session = make_session()
    (plan,) = plan_sessions([session], NODE, (), NOW, "act")
    assert (plan.sentence, plan.obstacles) == ("about to reset GPU 0", ())
    hold = Hold(pod=PodIdentity(namespace="team", name="train", uid="u"), device=gpu_uuid(0))
    (plan,) = plan_sessions([session], NODE, [hold], NOW, "act")
    assert plan.sentence == "would reset GPU 0; the GPUs are held by team/train"
    begun = begin_attempt(session, NODE, NOW, deadline_seconds=2e6)
    (plan,) = plan_sessions([begun], NODE, (), NOW, "act")
    assert plan.sentence == "reset GPU 0: the attempt is under way"
    assert plan.obstacles == ("the attempt of session 1 has not ended",)


@pytest.mark.parametrize(
    ("rung", "is_own", "is_stale"), [(Rung.REBOOT, True, False), (Rung.REBOOT, False, True), (Rung.RESET, True, True)]
)
def test_a_request_for_a_reboot_is_stale_without_a_session_that_waits(rung: Rung, is_own: bool, is_stale: bool) -> None:
    """Somebody else's annotation is left alone."""
    node = ClusterNode(name="n", uid="u", written_annotations=("x/reboot",))
    waiting = make_session(attempts=[replace(make_attempt(outcome=None), rung=rung, is_own=is_own)])
    boot = waiting.attempts[0].boot
    assert is_request_stale(node, "x/reboot", [waiting], boot) is is_stale
    assert is_request_stale(node, "x/reboot", [waiting], "the next boot")
    assert is_request_stale(node, "x/reboot", [make_session(), replace(waiting, ending=Ending.REMOVED)], boot)
    assert not is_request_stale(node, "x/other", [], boot)
    assert not is_request_stale(None, "x/reboot", [], boot)


def test_the_polls_after_an_act_prove_the_gpus_or_not() -> None:
    """Evidence about other GPUs does not count; a GPU that does not answer is not proven."""
    session, well = make_session(attempts=[make_attempt(outcome=None)]), find_faults(NODE, {1: (make_fault(),)})
    assert judge_proof(session, well, 1.0, 10.0).outcome is Outcome.PROVEN
    ill = find_faults(NODE, {0: (make_fault(),)})
    assert judge_proof(session, ill, 9.0, 10.0).outcome is None
    late = judge_proof(session, ill, 10.0, 10.0)
    assert (late.outcome, late.detail) == (Outcome.FAILED, "xid-119 after the act")
    blind = replace(find_faults(NODE, {}), answered=frozenset(), blind="")
    assert judge_proof(session, blind, 1.0, 10.0).outcome is None
    assert judge_proof(session, blind, 10.0, 10.0).detail == "a GPU does not answer after the act"
    silent = replace(blind, blind="the driver is not ready: stuck")
    assert judge_proof(session, silent, 10.0, 10.0).detail == "the driver is not ready: stuck"


def test_only_what_a_reset_took_back_is_put_back() -> None:
    """What needs another reset is said, and what cannot be read is left alone."""
    before = replace(
        make_gpu(2),
        persistence_mode=True,
        power_limit_milliwatts=500_000,
        compute_mode=ComputeMode.EXCLUSIVE_PROCESS,
        application_clocks_mhz=(2619, 1500),
        mig=Mig(enabled=True, pending=True),
        ecc_enabled=True,
    )
    (kept,) = keep_settings([before])
    assert find_changed(kept, before) == PutBack()
    lost = replace(
        before,
        persistence_mode=False,
        power_limit_milliwatts=700_000,
        compute_mode=ComputeMode.DEFAULT,
        application_clocks_mhz=(2619, 1980),
        mig=Mig(enabled=False, pending=False),
        ecc_enabled=False,
    )
    found = find_changed(kept, lost)
    assert (found.persistence_mode, found.power_limit_milliwatts) == (True, 500_000)
    assert (found.compute_mode, found.application_clocks_mhz) == (ComputeMode.EXCLUSIVE_PROCESS, (2619, 1500))
    assert found.remarks == ("MIG mode of GPU 2 was on and is off", "ECC of GPU 2 was on and is off")
    (shared,) = keep_settings([before], by_mps=(before.uuid,))
    assert find_changed(shared, lost) == replace(found, compute_mode=None)
    unread = replace(make_gpu(2), persistence_mode=None, power_limit_milliwatts=None, mig=None, ecc_enabled=None)
    assert find_changed(kept, unread) == PutBack()
    (unknown,) = keep_settings([unread])
    assert find_changed(unknown, lost) == PutBack()
