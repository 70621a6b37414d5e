"""The work of each stage, and the verdict by the readings of the driver: at once, and by their growth meanwhile."""

from collections.abc import Iterator, Sequence
from typing import Final

from msgspec.structs import replace

from nodeagent.model.gpu import FabricPhase, Gpu
from nodeagent.model.proof import ProofCheck, ProofPlan, ProofStage, ProofVerdict
from nodeagent.model.telemetry import GpuSample

_HARDWARE_SLOWDOWN: Final = 0x8 | 0x40 | 0x80
"""Clock event reasons: slowdown, thermal slowdown and power brake by the hardware."""
_QUICK: Final = ProofPlan(turns=64, rounds=20_000)
_PROOF: Final = replace(_QUICK, rounds=400_000, all_memory=True, with_peers=True)
_PLANS: Final = {
    ProofStage.QUICK: _QUICK,
    ProofStage.PROOF: _PROOF,
    ProofStage.SOAK: replace(_PROOF, repeat_seconds=180.0),
}


def plan_stage(stage: ProofStage) -> ProofPlan | None:
    """What the prover has to do; `None` for the stage without a context on the GPU."""
    return _PLANS.get(stage)


def plan_neighbour(plan: ProofPlan) -> ProofPlan:
    """What a GPU has to do that is only compared with: the speeds alone, which are measured alike in every stage."""
    return replace(plan, rounds=_QUICK.rounds, all_memory=False, with_peers=False, repeat_seconds=0.0)


def judge_instant(
    gpu: Gpu, sample: GpuSample | None, before: Gpu | None, neighbours: Sequence[GpuSample]
) -> tuple[ProofCheck, ...]:
    """A check for each reading that the GPU has; `before` is the GPU as the agent knows it.

    A GPU that is lost has failed; without a sample nothing is known.
    """
    if gpu.lost or (sample is not None and sample.lost):
        reason = gpu.lost or (sample.lost if sample is not None else "")
        return (_check("driver", reason, "the GPU answers", is_right=False),)
    if sample is None:
        untested = ProofVerdict.UNTESTED
        return (ProofCheck(name="driver", verdict=untested, measured="no reading", expected="the GPU answers"),)
    checks = [*_judge_identity(gpu, before), *_judge_recovery(sample), *_judge_memory(sample)]
    return (*checks, *_judge_links(gpu, sample, neighbours), *_judge_fabric(gpu))


def judge_growth(before: GpuSample | None, after: GpuSample | None, xids: Sequence[int]) -> ProofCheck:
    """Whether the driver reported errors of the GPU while the GPU was proven."""
    name, expected = "errors", "no new XID, no new ECC error"
    if after is None or after.lost:
        measured = after.lost if after is not None else "no reading after the proof"
        return ProofCheck(
            name=name,
            verdict=ProofVerdict.UNTESTED if after is None else ProofVerdict.FAILED,
            measured=measured,
            expected=expected,
        )
    errors = [f"XID {xid}" for xid in dict.fromkeys(xids)]
    old = before.ecc_uncorrected_volatile if before is not None else None
    new = after.ecc_uncorrected_volatile
    if old is not None and new is not None and new > old:
        errors.append(f"{new - old} ECC errors that could not be corrected")
    return _check(name, ", ".join(errors) or "none", expected, is_right=not errors)


def _judge_identity(gpu: Gpu, before: Gpu | None) -> Iterator[ProofCheck]:
    if before is None:
        return
    now, then = (gpu.uuid, gpu.serial), (before.uuid, before.serial)
    yield _check("identity", " ".join(filter(None, now)), " ".join(filter(None, then)), is_right=now == then)


def _judge_recovery(sample: GpuSample) -> Iterator[ProofCheck]:
    if sample.recovery_action is not None:
        yield _check("recovery action", str(sample.recovery_action), "0", is_right=sample.recovery_action == 0)
    if sample.clock_event_reasons is not None:
        slow = sample.clock_event_reasons & _HARDWARE_SLOWDOWN
        yield _check("slowdown", f"reasons {slow:#x}" if slow else "none", "none by the hardware", is_right=not slow)


def _judge_memory(sample: GpuSample) -> Iterator[ProofCheck]:
    pending = sample.remapped_rows_pending or sample.retired_pages_pending
    known = [sample.remapped_rows_pending, sample.remapped_rows_failed, sample.retired_pages_pending]
    if any(one is not None for one in known):
        words = [*(["pending"] if pending else []), *(["failed"] if sample.remapped_rows_failed else [])]
        yield _check("row remap", ", ".join(words) or "none", "none pending or failed", is_right=not words)
    if (errors := sample.ecc_uncorrected_volatile) is not None:
        yield _check("ECC", f"{errors} uncorrected", "0 since the driver's start", is_right=errors == 0)


def _judge_links(gpu: Gpu, sample: GpuSample, neighbours: Sequence[GpuSample]) -> Iterator[ProofCheck]:
    """The width of PCIe; and NVLinks by the other GPUs, because boards have links without a counterpart."""
    most = gpu.pci.link_width_max
    if sample.pcie_width is not None and most is not None:
        yield _check("PCIe width", f"x{sample.pcie_width}", f"x{most}", is_right=sample.pcie_width >= most)
    others = [one.nvlinks_active for one in neighbours if one.nvlinks_active is not None]
    if sample.nvlinks_active is not None and others:
        usual = max(others)
        yield _check(
            "NVLinks",
            f"{sample.nvlinks_active} active",
            f"{usual}, as others have",
            is_right=sample.nvlinks_active >= usual,
        )


def _judge_fabric(gpu: Gpu) -> Iterator[ProofCheck]:
    fabric = gpu.fabric
    if fabric is None or fabric.phase is FabricPhase.NOT_SUPPORTED:
        return
    if fabric.phase is FabricPhase.COMPLETED:
        measured = f"completed, status {fabric.status_code}"
        yield _check("fabric", measured, "completed, status 0", is_right=fabric.status_code == 0)
        return
    words = str(fabric.phase).replace("_", " ")
    yield ProofCheck(name="fabric", verdict=ProofVerdict.UNTESTED, measured=words, expected="completed, status 0")


def _check(name: str, measured: str, expected: str, *, is_right: bool) -> ProofCheck:
    verdict = ProofVerdict.PASSED if is_right else ProofVerdict.FAILED
    return ProofCheck(name=name, verdict=verdict, measured=measured, expected=expected)
