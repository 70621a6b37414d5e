"""What an allocated device needs before its pod is bound, and what the scheduler is told."""

from typing import Any

import pytest
from msgspec.structs import replace

from nodeagent.components.proof.binding import (
    RETRY_SECONDS,
    Answer,
    BindingSight,
    DeviceWait,
    Step,
    answer_device,
    end_wait,
    list_awaiting,
    list_offered,
)
from nodeagent.model.claims import ClaimResult, DeviceToleration
from nodeagent.model.ids import GpuUuid
from nodeagent.model.proof import BINDING_CONDITION, BINDING_FAILURE, ProofRecord, ProofStage, ProofVerdict
from nodeagent.model.slices import DeviceTaint, SliceContent, SliceDevice
from tests.support.claims import DRIVER, POOL, make_claim, make_result, with_minors
from tests.support.gpus import make_gpu
from tests.support.mig import make_mig_gpu

PASSED, FAILED, UNTESTED = ProofVerdict
GPU = GpuUuid(make_gpu(0).uuid)
NOW, WALL, FRESH, PATIENCE = 1000.0, 5000.0, 600.0, 60.0
TAINT = DeviceTaint(key=f"{DRIVER}/proof-failed", value="unhealthy", effect="NoSchedule")
OLD = ProofRecord(
    verdict=PASSED, ended_seconds=WALL - 900, took_seconds=2.0, level=ProofStage.QUICK, proven_seconds=WALL - 900
)
NEW = replace(OLD, ended_seconds=WALL - 1, proven_seconds=WALL - 1)
BAD = ProofRecord(verdict=FAILED, ended_seconds=WALL - 1, took_seconds=2.0, reason="memory: 1 wrong word")
BLIND = ProofRecord(verdict=UNTESTED, ended_seconds=WALL - 1, took_seconds=0.1, reason="libcuda is missing")


def see(record: ProofRecord | None = None, *taints: DeviceTaint, **more: Any) -> BindingSight:
    known: dict[str, Any] = {
        "inventory": with_minors(make_gpu(0)),
        "offered": {"gpu-0": SliceDevice(name="gpu-0", taints=taints)},
        "records": {} if record is None else {GPU: record},
        "free": {GPU},
        "held": set(),
        "proving": None,
        "stage": ProofStage.QUICK,
        "fresh_seconds": FRESH,
        "patience_seconds": PATIENCE,
        "now_seconds": NOW,
        "wall_seconds": WALL,
    }
    return BindingSight(**{**known, **more})


def answer(
    sight: BindingSight, *, waited: float = 1.0, before: ProofRecord | None = None, **result: object
) -> tuple[Step, str]:
    wait = DeviceWait(since_seconds=NOW - waited, before=before)
    found = answer_device(make_result(**result), wait, sight)  # type: ignore[arg-type]
    return found.step, found.reason


@pytest.mark.parametrize(
    ("record", "before", "expected"),
    [
        (None, None, (Step.PROVE, "")),
        (OLD, OLD, (Step.PROVE, "")),
        (NEW, NEW, (Step.BIND, "Proven")),
        (NEW, OLD, (Step.BIND, "Proven")),
        (replace(NEW, is_given_up=True), OLD, (Step.BIND, "Proven")),
        (replace(OLD, ended_seconds=WALL, is_given_up=True), OLD, (Step.PROVE, "")),
        (replace(NEW, proven_seconds=WALL + 1), replace(NEW, proven_seconds=WALL + 1), (Step.PROVE, "")),
        (BAD, BAD, (Step.PROVE, "")),
        (BAD, OLD, (Step.WAIT, "")),
        (replace(BAD, is_given_up=True), BAD, (Step.PROVE, "")),
        (BLIND, None, (Step.WAIT, "")),
        (replace(BLIND, ended_seconds=WALL - RETRY_SECONDS), None, (Step.PROVE, "")),
    ],
)
def test_a_free_gpu_is_proven_once_and_a_new_failure_waits_for_its_taint(
    record: ProofRecord | None, before: ProofRecord | None, expected: tuple[Step, str]
) -> None:
    assert answer(see(record), before=before) == expected


def test_a_pass_counts_for_its_stage_and_for_the_wait_in_which_it_came() -> None:
    """Where nothing is fresh, one proof for each pod, and no second."""
    assert answer(see(NEW, stage=ProofStage.PROOF), before=NEW) == (Step.PROVE, "")
    assert answer(see(NEW, stage=ProofStage.PROOF), before=OLD) == (Step.PROVE, "")
    assert answer(see(NEW, fresh_seconds=0.0), before=NEW) == (Step.PROVE, "")
    assert answer(see(NEW, fresh_seconds=0.0), before=OLD) == (Step.BIND, "Proven")


def test_a_device_that_pods_are_kept_away_from_fails_and_says_why() -> None:
    assert answer(see(BAD, TAINT), before=OLD) == (Step.FAIL, "ProofFailed")
    assert answer(see(NEW, TAINT), before=OLD) == (Step.FAIL, "DeviceTainted")
    assert answer(see(BAD, offered={}), before=OLD) == (Step.FAIL, "DeviceGone")
    assert answer(see(), device="gpu-7") == (Step.FAIL, "DeviceGone")
    told = replace(TAINT, effect="None")
    assert answer(see(NEW, told), before=NEW) == (Step.BIND, "Proven")


@pytest.mark.parametrize(
    ("toleration", "is_tolerated"),
    [
        (DeviceToleration(), True),
        (DeviceToleration(key=TAINT.key, value="unhealthy", effect="NoSchedule"), True),
        (DeviceToleration(key=TAINT.key, value="other"), False),
        (DeviceToleration(key="another/key"), False),
        (DeviceToleration(key=TAINT.key, effect="NoExecute"), False),
    ],
)
def test_a_claim_that_tolerates_the_taint_gets_the_gpu(toleration: DeviceToleration, is_tolerated: bool) -> None:
    """Its scheduler would choose the same device for ever."""
    expected = (Step.BIND, "Tolerated") if is_tolerated else (Step.FAIL, "ProofFailed")
    assert answer(see(BAD, TAINT), before=OLD, tolerations=(toleration,)) == expected


def test_a_gpu_in_use_is_not_proven_for_a_share_or_for_an_administrator() -> None:
    used = see(free=set(), held={GPU})
    assert answer(used, share_id="s1") == (Step.BIND, "InUse")
    assert answer(see(), share_id="s1") == (Step.PROVE, "")
    assert answer(used, is_admin=True) == (Step.BIND, "InUse")
    assert answer(used) == (Step.WAIT, "")


def test_no_pod_waits_for_long_for_a_gpu_that_cannot_be_tested() -> None:
    """But a GPU that is free is proven, however long its turn takes to come."""
    assert answer(see(free=set()), waited=PATIENCE - 1) == (Step.WAIT, "")
    assert answer(see(free=set()), waited=PATIENCE) == (Step.BIND, "NotTested")
    assert answer(see(BLIND), waited=PATIENCE) == (Step.BIND, "NotTested")
    assert answer(see(), waited=PATIENCE) == (Step.PROVE, "")
    assert answer(see(BAD), waited=PATIENCE) == (Step.WAIT, "")
    assert answer(see(proving=GPU, free=set()), waited=PATIENCE) == (Step.WAIT, "")
    cut = with_minors(make_mig_gpu(0, "h100-sxm5-80gb", enabled=True))
    assert answer(see(inventory=cut)) == (Step.BIND, "NotTested")


def test_only_undecided_devices_of_this_node_with_the_condition_are_waited_for() -> None:
    asking = make_result("gpu-0", awaited=(BINDING_CONDITION,))
    others: list[ClaimResult] = [
        make_result("gpu-1"),
        replace(asking, pool="another"),
        replace(asking, driver="nic.example.com"),
        replace(asking, reached=frozenset({BINDING_CONDITION})),
        replace(asking, reached=frozenset({BINDING_FAILURE})),
    ]
    assert list_awaiting(make_claim(asking, *others), DRIVER, POOL) == (asking,)


def test_a_claim_is_answered_when_all_devices_pass_or_one_fails() -> None:
    """A scheduler looks at devices in their order, and stops at the first that is not ready."""
    first, second = make_result("gpu-0"), make_result("gpu-1")
    bind, fail = Answer(step=Step.BIND, reason="Proven"), Answer(step=Step.FAIL, reason="ProofFailed")
    assert end_wait([]) == ()
    for waiting in (Step.WAIT, Step.PROVE):
        pending = Answer(step=waiting)
        assert end_wait([(first, bind), (second, pending)]) == ()
        told = end_wait([(first, pending), (second, fail)])
        assert [(one.is_proven, one.reason) for one in told] == [(False, "OtherDeviceFailed"), (False, "ProofFailed")]
    told = end_wait([(first, bind), (second, fail)])
    assert [(one.result.device, one.is_proven) for one in told] == [("gpu-0", True), ("gpu-1", False)]
    assert all(one.is_proven for one in end_wait([(first, bind), (second, bind)]))


def test_devices_are_found_in_all_slices() -> None:
    pages = [SliceContent(devices=(SliceDevice(name=name),)) for name in ("gpu-0", "gpu-1")]
    assert list_offered(pages).keys() == {"gpu-0", "gpu-1"}
