"""Proof before binding: what an allocated device needs now, and the conditions that end the scheduler's wait.

Owns the order of the reasons. A device that pods are kept away from fails, and no other device does: a scheduler
remembers no failure, and would choose a device without a taint again. Refuses to hold a pod for a GPU that cannot be
tested.
"""

from collections.abc import Mapping, Sequence
from collections.abc import Set as AbstractSet
from enum import StrEnum
from typing import Final

from nodeagent.model.claims import ClaimResult, DeviceCondition, ResourceClaim
from nodeagent.model.gpu import Gpu, Inventory
from nodeagent.model.ids import GpuUuid
from nodeagent.model.proof import BINDING_CONDITION, BINDING_FAILURE, ProofRecord, ProofStage, ProofVerdict
from nodeagent.model.slices import KEEPING_AWAY, SliceContent, SliceDevice
from nodeagent.model.values import Value
from nodeagent.rules.claims.naming import find_device

RETRY_SECONDS: Final = 5.0
"""Between two attempts at a GPU that could not be tested."""
_TOLERATED: Final = "the claim tolerates each taint of the device"
_IN_USE: Final = "the GPU is in use by others, and cannot be proven meanwhile"
_STAGES: Final = tuple(ProofStage)


class Step(StrEnum):
    """The next step for an allocated device."""

    WAIT = "wait"
    PROVE = "prove"
    BIND = "bind"
    FAIL = "fail"


class Answer(Value, frozen=True):
    """The step for a device, with a word for programs and a sentence for people where the step ends the wait."""

    step: Step
    reason: str = ""
    message: str = ""


class DeviceWait(Value, frozen=True):
    """The begin of the wait for a device."""

    since_seconds: float
    """By the monotonic clock."""
    before: ProofRecord | None
    """The newest proof of the GPU at that time."""


class BindingSight(Value, frozen=True):
    """All inputs of the answers."""

    inventory: Inventory
    offered: Mapping[str, SliceDevice]
    """The devices as the API server has them, by name."""
    records: Mapping[GpuUuid, ProofRecord]
    free: AbstractSet[GpuUuid]
    """The GPUs that may be proven now."""
    held: AbstractSet[GpuUuid]
    """The GPUs that claims have."""
    proving: GpuUuid | None
    stage: ProofStage
    fresh_seconds: float
    patience_seconds: float
    now_seconds: float
    wall_seconds: float


def list_offered(contents: Sequence[SliceContent]) -> dict[str, SliceDevice]:
    """The devices of the published slices, by name."""
    return {device.name: device for content in contents for device in content.devices}


def list_awaiting(claim: ResourceClaim, driver: str, pool: str) -> tuple[ClaimResult, ...]:
    """The claim's devices of this node for which the scheduler waits."""
    return tuple(
        result
        for result in claim.results
        if (result.driver, result.pool) == (driver, pool)
        and BINDING_CONDITION in result.awaited
        and not result.reached & {BINDING_CONDITION, BINDING_FAILURE}
    )


def answer_device(result: ClaimResult, wait: DeviceWait, sight: BindingSight) -> Answer:
    """The next step for the device."""
    named, offered = find_device(sight.inventory, result.device), sight.offered.get(result.device)
    if named is None or offered is None:
        return Answer(step=Step.FAIL, reason="DeviceGone", message="the node does not offer the device any more")
    record, gpu = sight.records.get(named.gpu.uuid), named.gpu
    # A proof that was given up says no more than the proof before.
    outcome = record if record != wait.before and record is not None and not record.is_given_up else None
    return (
        _answer_tainted(result, offered, outcome)
        or _answer_used(result, gpu, sight)
        or _answer_proven(record, outcome, sight)
        or _answer_unproven(gpu, wait, outcome, sight)
    )


def _answer_tainted(result: ClaimResult, offered: SliceDevice, outcome: ProofRecord | None) -> Answer | None:
    away = [taint for taint in offered.taints if taint.effect in KEEPING_AWAY]
    kept = [taint.key for taint in away if not any(one.covers(taint) for one in result.tolerations)]
    if kept and outcome is not None and outcome.verdict is ProofVerdict.FAILED:
        return Answer(step=Step.FAIL, reason="ProofFailed", message=f"the GPU failed its proof: {outcome.reason}")
    if kept:
        return Answer(step=Step.FAIL, reason="DeviceTainted", message=f"the device has the taint {', '.join(kept)}")
    return Answer(step=Step.BIND, reason="Tolerated", message=_TOLERATED) if away else None


def _answer_used(result: ClaimResult, gpu: Gpu, sight: BindingSight) -> Answer | None:
    is_used = result.is_admin or (result.share_id and gpu.uuid in sight.held)
    return Answer(step=Step.BIND, reason="InUse", message=_IN_USE) if is_used else None


def _answer_proven(record: ProofRecord | None, outcome: ProofRecord | None, sight: BindingSight) -> Answer | None:
    if outcome is not None and outcome.verdict is ProofVerdict.FAILED:
        # The taint is on its way.
        return Answer(step=Step.WAIT)
    if record is None or not _has_passed(record, outcome, sight):
        return None
    return Answer(step=Step.BIND, reason="Proven", message=f"the GPU has passed the stage {record.level}")


def _has_passed(record: ProofRecord, outcome: ProofRecord | None, sight: BindingSight) -> bool:
    newest = record.newest_pass
    if newest is None or _STAGES.index(newest[0]) < _STAGES.index(sight.stage):
        return False
    if outcome is not None and outcome.verdict is ProofVerdict.PASSED:
        return True
    # A clock that was set back makes no old proof new.
    return 0 <= sight.wall_seconds - newest[1] < sight.fresh_seconds


def _answer_unproven(gpu: Gpu, wait: DeviceWait, outcome: ProofRecord | None, sight: BindingSight) -> Answer:
    untested = outcome if outcome is not None and outcome.verdict is ProofVerdict.UNTESTED else None
    is_late = sight.now_seconds - wait.since_seconds >= sight.patience_seconds
    is_free = gpu.uuid in sight.free
    if gpu.uuid == sight.proving:
        return Answer(step=Step.WAIT)
    if gpu.mig_enabled:
        return _bind_untested("the GPU is in MIG mode")
    if is_late and (untested is not None or not is_free):
        return _bind_untested(untested.reason if untested is not None else "the GPU was not free for a proof")
    if not is_free or (untested is not None and 0 <= sight.wall_seconds - untested.ended_seconds < RETRY_SECONDS):
        return Answer(step=Step.WAIT)
    return Answer(step=Step.PROVE)


def _bind_untested(why: str) -> Answer:
    return Answer(step=Step.BIND, reason="NotTested", message=f"the GPU could not be tested: {why}")


def end_wait(answers: Sequence[tuple[ClaimResult, Answer]]) -> tuple[DeviceCondition, ...]:
    """The conditions of a claim's devices; empty while the scheduler has to wait.

    A scheduler sees no failure behind a device that it waits for, so that one failure fails each undecided device.
    """
    steps = {answer.step for _, answer in answers}
    if Step.FAIL not in steps and steps - {Step.BIND}:
        return ()
    other = Answer(step=Step.FAIL, reason="OtherDeviceFailed", message="another device of the claim failed")
    ended = [(result, one if one.step in {Step.BIND, Step.FAIL} else other) for result, one in answers]
    return tuple(
        DeviceCondition(result=result, is_proven=one.step is Step.BIND, reason=one.reason, message=one.message)
        for result, one in ended
    )
