"""Which GPU is free, when the next proof is due, and what a proof is worth."""

from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec.structs import replace

from nodeagent.model.allocation import Allocation, AllocationTable
from nodeagent.model.claims import ReadyClaims
from nodeagent.model.cordons import Cordon, CordonSource
from nodeagent.model.driver import DriverPhase, DriverState
from nodeagent.model.health import HealthReport
from nodeagent.model.ids import DeviceId, ResourceName
from nodeagent.model.journal import FractionTable, GpuFraction, PreparedClaim, PreparedDevice, Reservation
from nodeagent.model.mig import GpuChange, MigState
from nodeagent.model.mps import MpsDaemon, MpsLimits, MpsPhase, MpsState
from nodeagent.model.offering import AllocationMode, ModeHolder, Offering
from nodeagent.model.proof import (
    PatternPass,
    ProofRecord,
    ProofStage,
    ProofVerdict,
    ProverReadings,
    Speed,
    SpeedKind,
)
from nodeagent.model.repairs import RepairState
from nodeagent.model.telemetry import GpuSample, ProcessSample
from nodeagent.rules.proof.idle import (
    DUTY,
    RETRY_SECONDS,
    NodeView,
    Pace,
    ProofOf,
    find_braked_since,
    find_share,
    find_wait,
    follow_free,
    is_unused,
    judge_proof,
    list_open,
    note_given_up,
    plan_idle,
)
from tests.support.examples import examples
from tests.support.fractions import make_offering
from tests.support.gpus import gpu_uuid, make_gpu, make_node, mig_uuid
from tests.support.repairs import QUIET, make_binding, make_fault, make_report, make_session

PASSED, FAILED, UNTESTED = ProofVerdict
NODE = make_node(3)
PACE = Pace(every_seconds=86400, free_seconds=60, spread_seconds=3600)
GOOD = ProverReadings(patterns=(PatternPass(where="memory", size_bytes=64, seed=1, mask=0),))
BAD = ProverReadings(patterns=(PatternPass(where="memory", size_bytes=64, seed=1, mask=0, wrong=1),))
NOTHING = ProverReadings(stopped="the library is missing")


def allocate(*devices: str) -> AllocationTable:
    one = Allocation(number=1, resource=ResourceName("r"), devices=tuple(map(DeviceId, devices)), since_seconds=0)
    return AllocationTable(allocations=(one,))


def claim(*, is_admin: bool) -> ReadyClaims:
    device = PreparedDevice(requests=("r",), pool="p", device="d", uuid=gpu_uuid(1), gpu=gpu_uuid(1), is_admin=is_admin)
    return ReadyClaims(
        claims={"u": PreparedClaim(uid="u", namespace="n", name="c", devices=(device,), since_seconds=0)}
    )


CORDON = Cordon(gpu=gpu_uuid(1), source=CordonSource.COMMAND, named="1")


def cordon_second() -> Offering:
    first, second, *rest = make_offering(NODE).doors
    return Offering(doors=(first, replace(second, cordons=(CORDON,)), *rest))


BRAKE = Cordon(
    gpu=gpu_uuid(1), source=CordonSource.BRAKE, named="1", until_seconds=900.0, since_seconds=500.0, closings=1
)


def brake_second(*cordons: Cordon, **changes: Any) -> Offering:
    """Closed by the brake, and by whatever else a test says."""
    first, second, *rest = make_offering(NODE).doors
    return Offering(doors=(first, replace(second, cordons=(BRAKE, *cordons), is_open=False, **changes), *rest))


def list_indexes(view: NodeView, *exclude: str) -> list[int]:
    return [gpu.index for gpu in list_open(view, (), exclude)]


DAEMON = MpsDaemon(name="d", gpus=(gpu_uuid(1),), owner="r", limits=MpsLimits(), phase=MpsPhase.READY)
CHANGE = GpuChange(gpu=gpu_uuid(1), index=1, wanted="7 x 1g.10gb", doing="waits")


@pytest.mark.parametrize(
    "view",
    [
        replace(QUIET, allocations=allocate(gpu_uuid(1))),
        replace(QUIET, allocations=allocate(f"{gpu_uuid(1)}::3")),
        replace(QUIET, claims=claim(is_admin=False)),
        replace(QUIET, mig=MigState(changes=(CHANGE,))),
        replace(QUIET, mps=MpsState(daemons=(DAEMON,))),
        replace(QUIET, repairs=RepairState(sessions=(make_session(index=1),))),
        replace(QUIET, offering=cordon_second()),
        replace(QUIET, offering=make_offering(NODE, {1: (AllocationMode.NONE, False)})),
        replace(QUIET, offering=Offering(doors=tuple(one for one in make_offering(NODE).doors if one.index != 1))),
        replace(QUIET, health=make_report(NODE, {1: (make_fault(),)})),
        replace(QUIET, inventory=replace(NODE, gpus=(NODE.gpus[0], make_gpu(1, lost="off the bus"), NODE.gpus[2]))),
        replace(QUIET, inventory=replace(NODE, gpus=(NODE.gpus[0], make_gpu(1, mig=["1g.10gb"]), NODE.gpus[2]))),
    ],
)
def test_a_gpu_that_somebody_has_or_closed_is_left_alone(view: NodeView) -> None:
    """By each source alone; the other GPUs of the node are proven meanwhile."""
    assert list_indexes(view) == [0, 2]


def test_admin_access_and_closed_sessions_hold_nothing() -> None:
    closed = replace(make_session(index=1), ending="repaired")
    view = replace(QUIET, claims=claim(is_admin=True), repairs=RepairState(sessions=(closed,)))
    assert list_indexes(view) == [0, 1, 2]
    assert list_indexes(view, "0") == [1, 2]


def test_a_gpu_that_the_brake_alone_has_closed_is_proven() -> None:
    """Not one that is given to no pod, that a mode change waits for, or that a person has cordoned too."""
    assert list_indexes(replace(QUIET, offering=brake_second())) == [0, 1, 2]
    holder = ModeHolder(door=AllocationMode.WHOLE, name="allocation 12")
    for closed in (brake_second(CORDON), brake_second(wanted=AllocationMode.NONE), brake_second(waits_for=(holder,))):
        assert list_indexes(replace(QUIET, offering=closed)) == [0, 2]


def test_the_first_closing_by_the_brake_has_a_proof_before_the_next_day() -> None:
    """Once for a closing, at no place in the hour, and never for a GPU that a start has failed on again."""
    assert find_braked_since(brake_second(), gpu_uuid(1)) == 500
    assert find_braked_since(brake_second(), gpu_uuid(0)) is None
    assert find_braked_since(None, gpu_uuid(1)) is None
    again = replace(brake_second().doors[1], cordons=(replace(BRAKE, closings=2),))
    assert find_braked_since(Offering(doors=(again,)), gpu_uuid(1)) is None
    passed = ProofRecord(verdict=ProofVerdict.PASSED, ended_seconds=400.0, took_seconds=1.0)
    for record, wanted in ((None, 0), (passed, 0), (replace(passed, ended_seconds=501.0), PACE.every_seconds - 99)):
        found = find_wait(record, PACE, 0.5, free=60, running=0, wall_seconds=600.0, braked_seconds=500.0)
        assert found == wanted


def test_nothing_is_proven_beside_a_repair() -> None:
    """Of any GPU: a reset is refused while a process has the device open."""
    assert list_indexes(replace(QUIET, repairs=RepairState(closed_gpus={gpu_uuid(1): "session 2"}))) == []


def test_a_device_of_a_gpu_that_is_gone_holds_no_other() -> None:
    assert list_indexes(replace(QUIET, allocations=allocate(mig_uuid(7, 0)))) == [0, 1, 2]


def test_a_promised_fraction_may_be_of_any_gpu() -> None:
    """Until it is bound to one."""
    promised = Reservation(number=4, resource=ResourceName("r"), devices=(DeviceId("a"),), since_seconds=0)
    table = FractionTable(reservations={4: promised})
    assert list_indexes(replace(QUIET, fractions=table)) == []
    part = GpuFraction(gpu=gpu_uuid(1), cores=10, memory_bytes=1)
    bound = replace(table, bindings={5: make_binding(5, (4,), part)})
    assert list_indexes(replace(QUIET, fractions=bound)) == [0, 2]


@pytest.mark.parametrize(
    "change",
    [
        {"inventory": None},
        {"driver": None},
        {"driver": DriverState(phase=DriverPhase.RELEASED)},
        {"allocations": None},
        {"fractions": None},
        {"claims": None},
        {"offering": None},
        {"health": None},
        {"health": HealthReport(generation=1)},
    ],
)
def test_what_is_not_known_yet_is_not_free(change: dict[str, object]) -> None:
    assert list_indexes(replace(QUIET, **change)) == []


def test_a_gpu_is_free_from_the_last_break_on() -> None:
    before = follow_free({}, NODE.gpus, 10)
    held = follow_free(before, NODE.gpus[1:], 20)
    assert follow_free(held, NODE.gpus, 30) == {gpu_uuid(0): 30, gpu_uuid(1): 10, gpu_uuid(2): 10}


@pytest.mark.parametrize(
    ("sample", "unused"),
    [
        (None, False),
        (GpuSample(uuid=gpu_uuid(0)), True),
        (GpuSample(uuid=gpu_uuid(0), lost="no answer"), False),
        (GpuSample(uuid=gpu_uuid(0), processes=(ProcessSample(pid=7),)), False),
    ],
)
def test_a_process_without_a_pod_has_the_gpu_too(sample: GpuSample | None, *, unused: bool) -> None:
    assert is_unused(sample) is unused


def wait(record: ProofRecord | None, *, free: float = 1e6, running: float = 1e6, wall: float = 0.0) -> float:
    return find_wait(record, PACE, 0.5, free=free, running=running, wall_seconds=wall)


def test_the_first_proof_waits_for_a_free_minute_and_its_place_in_the_hour() -> None:
    assert wait(None, free=0, running=1e6) == 60
    assert wait(None, free=1e6, running=800) == 1000
    assert wait(None, free=60, running=1800) <= 0


@pytest.mark.parametrize(
    ("verdict", "given_up", "pause"),
    [
        (PASSED, False, 86400),
        (UNTESTED, False, RETRY_SECONDS),
        (PASSED, True, RETRY_SECONDS),
        (FAILED, False, 198),
        (FAILED, True, RETRY_SECONDS),
    ],
)
def test_the_pause_after_a_proof_follows_from_its_end(verdict: ProofVerdict, pause: float, *, given_up: bool) -> None:
    """A clock that was set back makes the pause no longer than it is from its begin."""
    record = ProofRecord(verdict=verdict, ended_seconds=1000, took_seconds=2, is_given_up=given_up)
    assert wait(record, wall=1000) == pytest.approx(pause)
    assert wait(record, wall=1000 + pause) == pytest.approx(0)
    assert wait(record, wall=-5000) == pytest.approx(pause)


@given(
    st.lists(
        st.tuples(st.sampled_from(ProofVerdict), st.booleans(), st.floats(0.01, 400), st.floats(0, 1e5)),
        min_size=1,
        max_size=20,
    )
)
@settings(max_examples=examples(100))
def test_a_gpu_is_proven_for_at_most_a_hundredth_of_the_time(
    proofs: list[tuple[ProofVerdict, bool, float, float]],
) -> None:
    """From the begin of each proof to the begin of the next, however the proofs end and however late one starts."""
    now = 0.0
    for verdict, given_up, took, late in proofs:
        record = ProofRecord(verdict=verdict, ended_seconds=now + took, took_seconds=took, is_given_up=given_up)
        start = now + took + max(0.0, wait(record, wall=now + took)) + late
        assert took <= DUTY * (start - now) * (1 + 1e-9)
        now = start


@given(st.text(max_size=8), st.integers(0, 7))
@settings(max_examples=examples(50))
def test_the_first_proofs_of_a_rack_are_spread(node: str, index: int) -> None:
    """The same node has the same places after each start, and another node others."""
    share = find_share(node, gpu_uuid(index))
    assert 0 <= share < 1
    assert share == find_share(node, gpu_uuid(index))
    assert share != find_share(f"{node}x", gpu_uuid(index))


def prove(
    readings: ProverReadings, before: ProofRecord | None = None, *beside: ProofRecord, ended: float = 100.0
) -> ProofRecord:
    proof = ProofOf(gpu=make_gpu(0), stage=ProofStage.QUICK, readings=readings, took_seconds=2.0, ended_seconds=ended)
    return judge_proof(proof, before, beside)


def test_a_pass_is_kept_until_a_failure() -> None:
    """A proof that could not be made, or was given up, is no word about the GPU."""
    passed = prove(GOOD)
    assert (passed.verdict, passed.newest_pass, passed.reason) == (PASSED, (ProofStage.QUICK, 100.0), "")
    untested = prove(NOTHING, passed, ended=200)
    assert (untested.verdict, untested.newest_pass) == (UNTESTED, (ProofStage.QUICK, 100.0))
    assert untested.reason == "prover: the library is missing"
    given_up = note_given_up(untested, 0.5, 300)
    assert (given_up.is_given_up, given_up.newest_pass, given_up.ended_seconds) == (True, passed.newest_pass, 300)
    failed = prove(BAD, given_up, ended=400)
    assert (failed.verdict, failed.newest_pass, failed.is_given_up) == (FAILED, None, False)
    assert failed.reason.startswith("memory: 1 word of 8 wrong")
    assert prove(NOTHING, failed).newest_pass is None


def test_without_a_proof_before_nothing_is_known() -> None:
    assert prove(NOTHING).newest_pass is None
    assert note_given_up(None, 0.5, 300).verdict is UNTESTED
    assert prove(ProverReadings()).reason == "the prover read nothing"


def measure(gbps: float) -> Speed:
    return Speed(kind=SpeedKind.TO_GPU, values=(gbps,))


def test_a_gpu_is_slow_by_two_of_three_proofs_and_never_fails_by_it() -> None:
    def at(gbps: float, before: ProofRecord | None) -> ProofRecord:
        return prove(replace(GOOD, speeds=(measure(gbps),)), before, *beside)

    beside = [ProofRecord(verdict=PASSED, ended_seconds=0, took_seconds=2, speeds=(measure(50),))] * 3
    first = at(20, None)
    assert (first.verdict, first.is_slow) == (PASSED, False)
    second = at(20, at(50, first))
    assert (second.verdict, second.is_slow) == (PASSED, True)
    assert "to GPU speed: 20 GB/s" in second.slow[-1]
    healed = at(50, at(50, second))
    assert (healed.is_slow, len(healed.slow)) == (False, 3)
    assert prove(GOOD, second).slow == second.slow


def test_no_other_gpu_takes_a_copy() -> None:
    """A pod may get the other GPU meanwhile."""
    assert not plan_idle(ProofStage.PROOF).with_peers
    assert plan_idle(ProofStage.PROOF).all_memory
