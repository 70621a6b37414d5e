"""PCIe and NVLink at one poll: missing lanes, low speed, bit errors; pure.

Owns the meaning of a slow link. Refuses counters over time (`rates.py`) and links that are down (`levels.py`).
"""

from typing import Final

from msgspec.structs import replace

from nodeagent.components.health.evidence.findings import Finding, suspect
from nodeagent.components.health.evidence.xids import DAY
from nodeagent.components.health.records import LevelMemory
from nodeagent.config.sections.health_limits import HealthLimits
from nodeagent.model.gpu import Gpu
from nodeagent.model.health import ReturnRule
from nodeagent.model.remedies import Remedy
from nodeagent.model.telemetry import GpuSample

_L: Final = ReturnRule.LEVELS_CLEAN


def judge_pcie(
    gpu: Gpu, sample: GpuSample, memory: LevelMemory, limits: HealthLimits
) -> tuple[tuple[Finding | None, ...], LevelMemory]:
    """Lanes at any time, speed under load alone: an idle GPU slows the link down without a fault."""
    narrow, memory = _judge_width(gpu, sample, memory, limits)
    slow, memory = _judge_speed(gpu, sample, memory, limits)
    return (narrow, slow), memory


def _judge_width(
    gpu: Gpu, sample: GpuSample, memory: LevelMemory, limits: HealthLimits
) -> tuple[Finding | None, LevelMemory]:
    width, widest = sample.pcie_width, gpu.pci.link_width_max
    is_narrow = width is not None and widest is not None and 0 < width < widest
    looks = min(memory.narrow_looks + 1, limits.pcie_degraded_polls) if is_narrow else 0
    memory = replace(memory, narrow_looks=looks)
    if looks < limits.pcie_degraded_polls:
        return None, memory
    reason = f"the PCIe link has {width} of {widest} lanes"
    return suspect("pcie-narrow", reason, Remedy.CHECK_SLOT, _L), memory


def _judge_speed(
    gpu: Gpu, sample: GpuSample, memory: LevelMemory, limits: HealthLimits
) -> tuple[Finding | None, LevelMemory]:
    generation, fastest = sample.pcie_generation, gpu.pci.link_generation_max
    if generation is None or fastest is None:
        return None, replace(memory, slow_looks=0)
    looks = memory.slow_looks
    if generation >= fastest:
        looks = 0
    elif _is_busy(sample, limits):
        looks = min(looks + 1, limits.pcie_degraded_polls)
    memory = replace(memory, slow_looks=looks)
    if looks < limits.pcie_degraded_polls:
        return None, memory
    reason = f"the PCIe link runs at generation {generation} of {fastest} under load"
    return suspect("pcie-slow", reason, Remedy.CHECK_SLOT, _L), memory


def _is_busy(sample: GpuSample, limits: HealthLimits) -> bool:
    percent: float = sample.gpu_utilization_percent or 0
    if sample.profiling is not None and sample.profiling.graphics_engine_active is not None:
        percent = max(percent, 100 * sample.profiling.graphics_engine_active)
    return percent >= limits.pcie_busy_percent


def judge_nvlinks(
    sample: GpuSample, memory: LevelMemory, limits: HealthLimits
) -> tuple[tuple[Finding | None, ...], LevelMemory]:
    """The slowest link against the fastest ever seen, and the worst bit error rate."""
    slow = noisy = None
    expected = max(memory.nvlink_speed_expected, sample.nvlink_speed_max_mbps or 0)
    slowest = sample.nvlink_speed_min_mbps
    if slowest is not None and slowest < expected:
        reason = f"an NVLink runs at {slowest} of {expected} MB/s"
        slow = suspect("nvlink-slow", reason, Remedy.CHECK_LINKS, _L)
    rate = sample.nvlink_effective_ber or 0.0
    if limits.nvlink_bit_error_ratio and rate > limits.nvlink_bit_error_ratio:
        reason = f"an NVLink has an effective bit error rate of {rate:.0e}"
        noisy = suspect("nvlink-error-rate", reason, Remedy.CHECK_LINKS, ReturnRule.QUIET_PERIOD, DAY)
    return (slow, noisy), replace(memory, nvlink_speed_expected=expected)
