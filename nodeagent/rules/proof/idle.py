"""Idle-time proving: which GPU may be proven, when the next proof of a GPU is due, and what is kept of a proof.

Owns what free means: no pod, claim or fraction has the GPU or is about to, and nothing else is done with the GPU. Owns
the limits of time too: a GPU is proven for at most 1 % of the time, and the first proofs after a start are spread.
"""

from collections.abc import Mapping, Sequence
from hashlib import sha256
from typing import Final

from msgspec.structs import replace

from nodeagent.model.allocation import AllocationTable
from nodeagent.model.claims import ReadyClaims
from nodeagent.model.cordons import CordonSource
from nodeagent.model.driver import DriverPhase, DriverState
from nodeagent.model.gpu import Gpu, Inventory
from nodeagent.model.health import HealthReport, Verdict
from nodeagent.model.ids import GpuUuid
from nodeagent.model.journal import FractionTable
from nodeagent.model.mig import MigState
from nodeagent.model.mps import MpsState
from nodeagent.model.offering import GpuAllocationMode, Offering
from nodeagent.model.proof import (
    SPEEDS_KEPT,
    GpuProof,
    ProofCheck,
    ProofPlan,
    ProofRecord,
    ProofStage,
    ProofVerdict,
    ProverReadings,
)
from nodeagent.model.repairs import RepairState
from nodeagent.model.telemetry import GpuSample
from nodeagent.model.values import Value
from nodeagent.rules.ids import find_uuid
from nodeagent.rules.offer.allocation_modes import gives_out
from nodeagent.rules.proof.floors import FLOORS, find_floors
from nodeagent.rules.proof.judge import judge_readings
from nodeagent.rules.proof.speeds import judge_speeds
from nodeagent.rules.proof.stages import plan_stage
from nodeagent.rules.selectors import select_gpus

DUTY: Final = 0.01
"""The most of the time for which a GPU is proven."""
RETRY_SECONDS: Final = 3600.0
"""The least pause after a proof without a word about the GPU."""


class NodeView(Value, frozen=True):
    """The states of the node's components on which a proof depends; `None` before a component has published."""

    inventory: Inventory | None
    driver: DriverState | None
    health: HealthReport | None
    offering: Offering | None
    allocations: AllocationTable | None
    fractions: FractionTable | None
    claims: ReadyClaims | None
    mig: MigState | None
    mps: MpsState | None
    repairs: RepairState | None


class Pace(Value, frozen=True):
    """The pauses of proving."""

    every_seconds: float
    free_seconds: float
    spread_seconds: float


def plan_idle(stage: ProofStage) -> ProofPlan:
    """The work of a stage without copies to other GPUs: these may be given to a pod meanwhile."""
    plan = plan_stage(stage)
    assert plan is not None
    return replace(plan, with_peers=False)


def list_open(view: NodeView, include: Sequence[str], exclude: Sequence[str]) -> tuple[Gpu, ...]:
    """The GPUs that may be proven now, as far as the node's components know; processes are looked for at the start."""
    if view.inventory is None or view.driver is None or view.driver.phase is not DriverPhase.READY:
        return ()
    if view.allocations is None or view.fractions is None or view.claims is None:
        return ()
    if any(number not in view.fractions.redeemed for number in view.fractions.reservations):
        # A fraction is promised, and its container gets it of any GPU.
        return ()
    if view.repairs is not None and view.repairs.closed_gpus:
        # The prover's process may have the device files of all GPUs open, and a reset would be refused.
        return ()
    closed = _list_closed(view, view.inventory)
    return tuple(gpu for gpu in select_gpus(view.inventory.gpus, include, exclude) if _is_open(gpu, view, closed))


def _is_open(gpu: Gpu, view: NodeView, closed: frozenset[str]) -> bool:
    verdict = view.health.find_device(gpu.uuid) if view.health is not None else None
    return (
        not gpu.lost
        and not gpu.mig_enabled
        and gpu.uuid not in closed
        and verdict is not None
        and verdict.verdict is Verdict.HEALTHY
    )


def _list_closed(view: NodeView, inventory: Inventory) -> frozenset[str]:
    """The GPUs that somebody has, is about to change or has closed."""
    assert view.allocations is not None
    assert view.fractions is not None
    assert view.claims is not None
    held = {find_uuid(one) for each in view.allocations.allocations for one in each.devices}
    owners = [inventory.find_gpu(uuid) for uuid in held]
    doors = {each.gpu: each for each in view.offering.doors} if view.offering is not None else {}
    return frozenset(
        {
            *(gpu.uuid for gpu in owners if gpu is not None),
            *view.fractions.by_gpu,
            *view.claims.by_gpu,
            *(change.gpu for change in (view.mig or MigState()).changes),
            *(gpu for daemon in (view.mps or MpsState()).daemons for gpu in daemon.gpus),
            *(uuid for one in (view.repairs or RepairState()).sessions if one.is_open for uuid in one.uuids),
            *(gpu.uuid for gpu in inventory.gpus if (mode := doors.get(gpu.uuid)) is None or not _may_prove(mode)),
        }
    )


def _may_prove(mode: GpuAllocationMode) -> bool:
    """Whether the GPU is open, or closed by the brake alone, whose pause a proof ends."""
    if any(one.source is not CordonSource.BRAKE for one in mode.cordons):
        return False
    return mode.is_settled and gives_out(mode.wanted) if mode.cordons else mode.is_open


def find_braked_since(offering: Offering | None, gpu: GpuUuid) -> float | None:
    """The time at which the brake closed a GPU for the first time in a row; `None` for another GPU."""
    modes = offering.doors if offering is not None else ()
    found = (one.since_seconds for mode in modes if mode.gpu == gpu for one in mode.cordons if one.closings == 1)
    return max((time for time in found if time is not None), default=None)


def follow_free(before: Mapping[GpuUuid, float], open_now: Sequence[Gpu], now: float) -> dict[GpuUuid, float]:
    """Since when each GPU has been free without a break."""
    return {gpu.uuid: before.get(gpu.uuid, now) for gpu in open_now}


def is_unused(sample: GpuSample | None) -> bool:
    """Whether the driver lists no process on the GPU; a GPU without a reading may have any."""
    return sample is not None and not sample.lost and not sample.processes


def find_share(node: str, gpu: GpuUuid) -> float:
    """The place of a GPU's first proof within the time over which the first proofs are spread: at least 0, below 1."""
    return int.from_bytes(sha256(f"{node}/{gpu}".encode()).digest()[:6]) / 2**48


def find_wait(
    record: ProofRecord | None,
    pace: Pace,
    share: float,
    *,
    free: float,
    running: float,
    wall_seconds: float,
    braked_seconds: float | None = None,
) -> float:
    """Seconds until the next proof of a GPU that has been free, beside an agent running, for so many seconds.

    A GPU that the brake has closed since its last proof does not wait for the next day.
    """
    is_braked = braked_seconds is not None and (record is None or record.ended_seconds <= braked_seconds)
    if is_braked:
        pace = replace(pace, every_seconds=0.0, spread_seconds=0.0)
    start = max(pace.free_seconds - free, pace.spread_seconds * share - running)
    if record is None:
        return start
    # A clock that was set back counts as no time, so that the pause is at most begun anew.
    since = max(0.0, wall_seconds - record.ended_seconds)
    return max(start, _find_pause(record, pace) - since)


def _find_pause(record: ProofRecord, pace: Pace) -> float:
    rest = record.took_seconds * (1 - DUTY) / DUTY
    if record.is_given_up or record.verdict is ProofVerdict.UNTESTED:
        return max(rest, min(RETRY_SECONDS, pace.every_seconds))
    # A failed GPU is taken away, and proven again as soon as it is healthy again.
    return max(rest, pace.every_seconds if record.verdict is ProofVerdict.PASSED else 0.0)


def note_given_up(before: ProofRecord | None, took_seconds: float, wall_seconds: float) -> ProofRecord:
    """A proof that was given up counts as none: what was known of the GPU stays."""
    known = before or ProofRecord(verdict=ProofVerdict.UNTESTED, ended_seconds=0.0, took_seconds=0.0)
    return replace(known, ended_seconds=wall_seconds, took_seconds=took_seconds, is_given_up=True)


class ProofOf(Value, frozen=True):
    """A finished proof."""

    gpu: Gpu
    stage: ProofStage
    readings: ProverReadings
    took_seconds: float
    ended_seconds: float


def judge_proof(proof: ProofOf, before: ProofRecord | None, neighbours: Sequence[ProofRecord]) -> ProofRecord:
    """The record of a GPU after a proof; `neighbours` are the records of other GPUs of the model.

    Speeds alone are no verdict: only what the GPU computed, stored and copied is.
    """
    gpu, readings = proof.gpu, proof.readings
    checks = judge_readings(readings, plan_idle(proof.stage), {})
    verdict = GpuProof(gpu=gpu.uuid, index=gpu.index, model=gpu.name, stage=proof.stage, checks=checks).verdict
    record = ProofRecord(
        verdict=verdict,
        ended_seconds=proof.ended_seconds,
        took_seconds=proof.took_seconds,
        reason="" if verdict is ProofVerdict.PASSED else _join(checks, verdict) or "the prover read nothing",
        speeds=before.speeds if before is not None else (),
        slow=before.slow if before is not None else (),
    )
    if verdict is ProofVerdict.PASSED:
        record = replace(record, level=proof.stage, proven_seconds=proof.ended_seconds)
    elif verdict is ProofVerdict.UNTESTED and before is not None:
        record = replace(record, level=before.level, proven_seconds=before.proven_seconds)
    if not readings.speeds:
        return record
    beside = [ProverReadings(speeds=one.speeds) for one in neighbours if one.speeds]
    judged = judge_speeds(gpu, readings, beside, find_floors(gpu.name, (FLOORS,)))
    slow = _join(judged.checks, ProofVerdict.FAILED)
    return replace(record, speeds=readings.speeds, slow=(*record.slow, slow)[-SPEEDS_KEPT:])


def _join(checks: Sequence[ProofCheck], verdict: ProofVerdict) -> str:
    """The checks with this verdict, in words."""
    return "; ".join(f"{one.name}: {one.measured}" for one in checks if one.verdict is verdict)
