"""Judges one poll of a GPU: bad levels, a reset in between, and the memory for the next poll.

Owns the thresholds of all polled levels; counters over time are in `rates.py`.
Refuses to open or close faults (`decide.py`).
"""

from collections import Counter
from collections.abc import Collection, Mapping
from typing import Final

from msgspec.structs import replace

from nodeagent.components.health.evidence.findings import Finding, PollResult, suspect, unhealthy
from nodeagent.components.health.evidence.links import judge_nvlinks, judge_pcie
from nodeagent.components.health.evidence.rates import judge_rates
from nodeagent.components.health.records import LevelMemory
from nodeagent.config.sections.health_limits import HealthLimits
from nodeagent.model.gpu import Fabric, FabricPhase, Gpu
from nodeagent.model.health import ReturnRule
from nodeagent.model.ids import PciAddress
from nodeagent.model.nvidia import LIBRARY
from nodeagent.model.remedies import Remedy
from nodeagent.model.telemetry import GpuSample

RECOVERY_ACTION: Final = "recovery-action"
UNCORRECTED: Final = "ecc-uncorrected"

_ACTIONS: Final = {
    1: (unhealthy, "a GPU reset", Remedy.RESET_GPU),
    2: (unhealthy, "a reboot of the node", Remedy.REBOOT_NODE),
    3: (suspect, "an end of peer-to-peer work", Remedy.DRAIN_AND_RESET),
    4: (unhealthy, "a GPU reset once the running work has ended", Remedy.DRAIN_AND_RESET),
    5: (suspect, "a recovery of the IMEX domain", Remedy.CHECK_LINKS),
}
"""Field 230: how bad each value is, its meaning, and what to do."""

_L, _R, _S = ReturnRule.LEVELS_CLEAN, ReturnRule.RESET, ReturnRule.SERVICE


def judge_levels(
    gpu: Gpu,
    sample: GpuSample | None,
    memory: LevelMemory,
    at: float,
    limits: HealthLimits,
    *,
    has_switches: bool = False,
    unlinked: Collection[PciAddress] = (),
) -> PollResult:
    """Judge the newest sample of a GPU against what is remembered of it.

    Args:
        gpu: The GPU of the inventory.
        sample: the newest reading; `None` where the sample lacks the GPU.
        memory: the memory of the polls before.
        at: when the sample was taken.
        limits: from where on a level is a fault.
        has_switches: whether the node has NVSwitches, so that the GPU must be in a fabric.
        unlinked: GPUs to which no link can be up for a known reason: MIG mode, lost, or gone.
    """
    lost = gpu.lost if sample is None else "" if sample.silent else sample.lost
    if lost:
        reason = f"the GPU cannot be reached: {lost}"
        finding = unhealthy("lost", reason, Remedy.POWER_CYCLE, ReturnRule.POWER_CYCLE)
        return PollResult(findings=(finding,), memory=memory, is_clean=False)
    if sample is None or sample.silent or not _is_alive(sample):
        return PollResult(memory=memory, answered=False, is_clean=False)
    return _judge_living(gpu, sample, memory, at, limits, has_switches=has_switches, unlinked=unlinked)


def judge_recovery_action(action: int) -> Finding | None:
    """The driver's recovery action as a finding; `None` for no action."""
    if action == 0:
        return None
    unknown = unhealthy, f"recovery action {action}, which is not known here", Remedy.REBOOT_NODE
    judged, words, remedy = _ACTIONS.get(action, unknown)
    return judged(RECOVERY_ACTION, f"the driver asks for {words}", remedy, _L)


def _is_alive(sample: GpuSample) -> bool:
    """Whether values from the hardware are there; identity may come from a cache."""
    signs = (sample.gpu_temperature_celsius, sample.recovery_action, sample.power_milliwatts, sample.memory_used_bytes)
    return any(sign is not None for sign in signs)


def _judge_living(
    gpu: Gpu,
    sample: GpuSample,
    before: LevelMemory,
    at: float,
    limits: HealthLimits,
    *,
    has_switches: bool,
    unlinked: Collection[PciAddress],
) -> PollResult:
    reset_seen = _was_reset(sample, before)
    memory = _remember(gpu, sample, before)
    deciding = (
        judge_recovery_action(sample.recovery_action or 0),
        _judge_uncorrected(sample, memory),
        _judge_remap_pending(sample),
        _judge_links(gpu, sample, memory, unlinked),
    )
    # A GPU that never had a link, on a node without switches, has no fabric to be in, whatever its driver says.
    is_linked = has_switches or memory.links_expected > 0
    fabric, memory = _judge_fabric(gpu.fabric if is_linked else None, memory, at, limits)
    bus, memory = judge_pcie(gpu, sample, memory, limits)
    links, memory = judge_nvlinks(sample, memory, limits)
    rates, memory = judge_rates(gpu, sample, memory, at, limits)
    wear = (*_judge_rows(sample, limits), _judge_pages(sample, limits), *_judge_board(gpu, sample))
    others = (_judge_mask(sample), _judge_heat(sample), fabric)
    return PollResult(
        findings=tuple(finding for finding in (*deciding, *wear, *others, *bus, *links, *rates) if finding is not None),
        memory=memory,
        is_clean=not any(deciding),
        reset_seen=reset_seen,
        recovery_action=sample.recovery_action,
        pids=_list_pids(sample),
    )


def _list_pids(sample: GpuSample) -> tuple[int, ...]:
    shares = (sample.processes, *(mig.processes for mig in sample.mig))
    return tuple(sorted({process.pid for processes in shares for process in processes}))


def _was_reset(sample: GpuSample, before: LevelMemory) -> bool:
    """Errors since the last reset are fewer, a remap came into force, or the driver no longer asks for recovery."""
    uncorrected = sample.ecc_uncorrected_volatile
    fewer = uncorrected is not None and before.uncorrected is not None and uncorrected < before.uncorrected
    remapped = before.remap_pending and _is_remap_pending(sample) is False
    recovered = bool(before.recovery_action) and sample.recovery_action == 0
    return fewer or remapped or recovered


def _is_remap_pending(sample: GpuSample) -> bool | None:
    if sample.remapped_rows_pending is not None:
        return sample.remapped_rows_pending
    return sample.retired_pages_pending


def _remember(gpu: Gpu, sample: GpuSample, before: LevelMemory) -> LevelMemory:
    """The memory with the sample's values in place of older ones."""
    uncorrected, baseline = sample.ecc_uncorrected_volatile, before.uncorrected_baseline
    if uncorrected is not None:
        if baseline is None:
            # Errors from before the first look count, unless the driver itself knows them and wants nothing done.
            baseline = uncorrected if sample.recovery_action == 0 else 0
        baseline = min(baseline, uncorrected)
    pending = _is_remap_pending(sample)
    return replace(
        before,
        uncorrected=uncorrected if uncorrected is not None else before.uncorrected,
        uncorrected_baseline=baseline,
        remap_pending=pending if pending is not None else before.remap_pending,
        recovery_action=sample.recovery_action if sample.recovery_action is not None else before.recovery_action,
        links_expected=max(before.links_expected, _count_links(gpu, sample)),
        links_to=_remember_peers(gpu, before.links_to),
    )


def _remember_peers(gpu: Gpu, before: Mapping[PciAddress, int]) -> Mapping[PciAddress, int]:
    """The driver reports the remote end of a link only while the link is up."""
    now = Counter(
        link.remote for link in gpu.nvlinks if link.active and link.remote is not None and not link.remote_is_switch
    )
    return {**before, **{peer: max(count, before.get(peer, 0)) for peer, count in now.items()}}


def _count_links(gpu: Gpu, sample: GpuSample) -> int:
    """The number of active links; a GPU in MIG mode has no link, without a fault."""
    return 0 if gpu.mig_enabled else sample.nvlinks_active or 0


def _judge_uncorrected(sample: GpuSample, memory: LevelMemory) -> Finding | None:
    count = sample.ecc_uncorrected_volatile
    if count is None or count <= (memory.uncorrected_baseline or 0):
        return None
    fresh = count - (memory.uncorrected_baseline or 0)
    reason = f"{fresh} uncorrectable memory {'error' if fresh == 1 else 'errors'} since the last reset"
    return unhealthy(UNCORRECTED, reason, Remedy.RESET_GPU, _R)


def _judge_remap_pending(sample: GpuSample) -> Finding | None:
    if sample.remapped_rows_pending:
        return suspect("remap-pending", "a memory row is remapped at the next reset", Remedy.DRAIN_AND_RESET, _R)
    if sample.retired_pages_pending:
        reason = "memory pages are retired at the next reload of the driver"
        return suspect("retirement-pending", reason, Remedy.DRAIN_AND_RESET, _R)
    return None


def _judge_board(gpu: Gpu, sample: GpuSample) -> tuple[Finding | None, ...]:
    """Lasting findings about the board."""
    caches = memory = inforom = None
    if sample.sram_threshold_exceeded:
        reason = "the caches had more uncorrectable errors than a board may have"
        caches = unhealthy("sram-threshold", reason, Remedy.SERVICE, _S)
    if sample.memory_unrepairable:
        memory = unhealthy("memory-unrepairable", "the memory can no longer be repaired", Remedy.SERVICE, _S)
    if gpu.inforom_valid is False:
        reason = "the infoROM is corrupted, the board's own counts may be wrong"
        inforom = suspect("inforom", reason, Remedy.POWER_CYCLE, ReturnRule.POWER_CYCLE)
    return caches, memory, inforom


def _judge_rows(sample: GpuSample, limits: HealthLimits) -> tuple[Finding | None, Finding | None]:
    failed = full = None
    if sample.remapped_rows_failed:
        failed = unhealthy("remap-failed", "a memory row could not be remapped", Remedy.SERVICE, _S)
    if (sample.remapped_rows_uncorrectable or 0) >= limits.remapped_rows_limit:
        reason = f"{sample.remapped_rows_uncorrectable} memory rows are remapped, which is all there are"
        full = suspect("remap-full", reason, Remedy.SERVICE, _S)
    return failed, full


def _judge_pages(sample: GpuSample, limits: HealthLimits) -> Finding | None:
    retired = (sample.retired_pages_single_bit or 0) + (sample.retired_pages_double_bit or 0)
    if retired < limits.retired_pages_limit:
        return None
    return unhealthy("pages-retired", f"{retired} memory pages are retired, the table is full", Remedy.SERVICE, _S)


def _judge_links(gpu: Gpu, sample: GpuSample, memory: LevelMemory, unlinked: Collection[PciAddress]) -> Finding | None:
    """Links that are down without a reason at their other end."""
    if sample.nvlinks_active is None or gpu.mig_enabled:
        return None
    expected = memory.links_expected - sum(count for peer, count in memory.links_to.items() if peer in unlinked)
    missing = expected - sample.nvlinks_active
    if missing <= 0:
        return None
    reason = f"{missing} of {expected} NVLinks are down"
    judged = unhealthy if sample.nvlinks_active == 0 else suspect
    return judged("nvlinks-down", reason, Remedy.CHECK_LINKS, _L)


def _judge_heat(sample: GpuSample) -> Finding | None:
    margin = sample.slowdown_margin_celsius
    if margin is None or margin > 0:
        return None
    return suspect("hot", f"{-margin} °C past the temperature limit", Remedy.CHECK_COOLING, _L)


def _judge_fabric(
    fabric: Fabric | None, memory: LevelMemory, at: float, limits: HealthLimits
) -> tuple[Finding | None, LevelMemory]:
    """A GPU that is not in its NVLink fabric cannot run CUDA; a registration under way is given some minutes."""
    if fabric is None or fabric.phase is FabricPhase.NOT_SUPPORTED or _is_in_fabric(fabric):
        return None, replace(memory, fabric_waiting_since_at=None)
    since = memory.fabric_waiting_since_at if memory.fabric_waiting_since_at is not None else at
    memory = replace(memory, fabric_waiting_since_at=since)
    if fabric.phase is not FabricPhase.COMPLETED and at - since < limits.fabric_patience_seconds:
        return None, memory
    code = f", {LIBRARY} code {fabric.status_code}" if fabric.status_code else ""
    reason = f"not registered with the NVLink fabric: {fabric.phase.replace('_', ' ')}{code}"
    return unhealthy("fabric", reason, Remedy.CHECK_LINKS, _L), memory


def _is_in_fabric(fabric: Fabric) -> bool:
    return fabric.phase is FabricPhase.COMPLETED and fabric.status_code == 0


_TRUE = 1
_UNHEALTHY_FABRIC, _LIMITED_FABRIC = 2, 3
_MASK_FLAGS: Final = ((0, "has less bandwidth"), (2, "recovers a route"), (6, "recovers from access time-outs"))
_MASK_WORDS: Final = {
    2: "the system GUID is wrong",
    3: "the chassis serial number is wrong",
    4: "the GPU is in no partition",
    5: "there are too few links",
    6: "the GPU's firmware does not fit",
    7: "the location is wrong",
    8: "the GPU's state is wrong",
}


def _judge_mask(sample: GpuSample) -> Finding | None:
    """The driver's own summary of the fabric, two bits a question and four for the configuration."""
    mask = sample.fabric_health_mask or 0
    configuration = mask >> 8 & 0xF
    if mask >> 4 & 3 == _TRUE:
        return unhealthy("fabric-health", "a route of the NVLink fabric is unhealthy", Remedy.CHECK_LINKS, _L)
    if configuration > 1:
        words = _MASK_WORDS.get(configuration, f"configuration code {configuration}")
        return unhealthy("fabric-health", f"the NVLink fabric is set up wrongly: {words}", Remedy.CHECK_LINKS, _L)
    summary = sample.fabric_health_summary
    if summary == _UNHEALTHY_FABRIC:
        return unhealthy("fabric-health", "the driver calls the NVLink fabric unhealthy", Remedy.CHECK_LINKS, _L)
    said = [words for shift, words in _MASK_FLAGS if mask >> shift & 3 == _TRUE]
    if not said and summary == _LIMITED_FABRIC:
        said = ["has limited capacity"]
    if not said:
        return None
    return suspect("fabric-health", f"the NVLink fabric {' and '.join(said)}", Remedy.CHECK_LINKS, _L)
