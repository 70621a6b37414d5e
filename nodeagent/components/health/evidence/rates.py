"""Levels over time: error counters, and how long a GPU is slowed down.

Owns the rates and their windows. A counter smaller than before has begun anew: the whole count is growth.
"""

import math
from typing import Final

from msgspec.structs import replace

from nodeagent.components.health.evidence.findings import Finding, suspect, unhealthy
from nodeagent.components.health.evidence.xids import DAY, HOUR
from nodeagent.components.health.records import CounterWindow, LevelMemory
from nodeagent.config.sections.health_limits import HealthLimits
from nodeagent.model.gpu import Gpu
from nodeagent.model.health import ReturnRule
from nodeagent.model.remedies import Remedy
from nodeagent.model.telemetry import GpuSample

MINUTE: Final = 60.0
REPLAYS_PER_LANE_MINUTE: Final = {1: 0.15, 2: 0.30, 3: 0.48, 4: 0.96, 5: 1.92, 6: 3.84}
"""Replays that a sound lane of each PCIe generation may have."""
HARDWARE_SLOWDOWN: Final = 0x8 | 0x40 | 0x80
"""Clock event reasons: slowed down by hardware, for heat, for the power supply."""

_W, _L = ReturnRule.QUIET_PERIOD, ReturnRule.LEVELS_CLEAN


def judge_rates(
    gpu: Gpu, sample: GpuSample, memory: LevelMemory, at: float, limits: HealthLimits
) -> tuple[tuple[Finding | None, ...], LevelMemory]:
    """Findings from the growth of counters since the poll before, and the memory for the next."""
    seconds = at - memory.looked_at if memory.looked_at is not None else 0.0
    links, memory = _judge_link_errors(sample, memory, seconds, limits)
    replays, memory = _judge_replays(gpu, sample, memory, at, limits)
    bus, memory = _judge_bus_errors(sample, memory)
    storm, memory = _judge_storm(sample, memory, at, limits)
    pages, memory = _judge_page_growth(sample, memory, at, limits)
    slow, memory = _judge_throttling(sample, memory, at, limits)
    return (*links, replays, bus, storm, pages, slow), replace(memory, looked_at=at)


def measure_growth(before: int | None, now: int | None) -> int:
    """The growth of a counter; `None` for a counter that was not read twice."""
    if before is None or now is None:
        return 0
    return now - before if now >= before else now


def _judge_link_errors(
    sample: GpuSample, memory: LevelMemory, seconds: float, limits: HealthLimits
) -> tuple[tuple[Finding | None, ...], LevelMemory]:
    recoveries = _sum(sample.nvlink_replay_count, sample.nvlink_recovery_count)
    crc = _sum(sample.nvlink_crc_flit_count, sample.nvlink_crc_data_count)
    recovered = measure_growth(memory.nvlink_recoveries, recoveries)
    damaged = measure_growth(memory.nvlink_crc, crc)
    failed = measure_growth(memory.nvlink_recoveries_failed, sample.nvlink_recovery_failed_count)
    memory = replace(
        memory,
        nvlink_recoveries=recoveries,
        nvlink_crc=crc,
        nvlink_recoveries_failed=sample.nvlink_recovery_failed_count,
    )
    retried = checksum = unrecovered = None
    if failed:
        reason = f"NVLinks could not be recovered {failed} {'time' if failed == 1 else 'times'} between two looks"
        unrecovered = suspect("nvlink-unrecovered", reason, Remedy.CHECK_LINKS, _L)
    if recovered:
        reason = f"{recovered} replays and recoveries on NVLinks between two looks"
        retried = suspect("nvlink-retries", reason, Remedy.CHECK_LINKS, _W, HOUR)
    if damaged:
        is_flood = damaged >= limits.nvlink_checksum_errors_per_second * max(seconds, 1.0)
        judged = unhealthy if is_flood else suspect
        reason = f"{damaged} checksum errors on NVLinks between two looks"
        checksum = judged("nvlink-checksums", reason, Remedy.CHECK_LINKS, _W, HOUR)
    return (retried, checksum, unrecovered), memory


def _sum(left: int | None, right: int | None) -> int | None:
    return None if left is None and right is None else (left or 0) + (right or 0)


def _judge_replays(
    gpu: Gpu, sample: GpuSample, memory: LevelMemory, at: float, limits: HealthLimits
) -> tuple[Finding | None, LevelMemory]:
    growth, minutes, window = _measure(memory.replays, sample.pcie_replay_count, at)
    memory = replace(memory, replays=window)
    lanes = sample.pcie_width or gpu.pci.link_width_max or 16
    per_lane = REPLAYS_PER_LANE_MINUTE.get(sample.pcie_generation or 0, REPLAYS_PER_LANE_MINUTE[1])
    if growth <= math.ceil(lanes * per_lane * limits.pcie_replay_ratio) * minutes:
        return None, memory
    reason = f"{growth} PCIe replays in {minutes:.0f} min"
    return suspect("pcie-replays", reason, Remedy.CHECK_SLOT, _W, HOUR), memory


def _judge_bus_errors(sample: GpuSample, memory: LevelMemory) -> tuple[Finding | None, LevelMemory]:
    """Uncorrected PCIe errors: the GPU counts fatal errors, the kernel also errors that cost one transfer."""
    fatal, aer = sample.pcie_fatal_error_count, _sum(sample.aer_fatal_count, sample.aer_non_fatal_count)
    grown = measure_growth(memory.pcie_fatal, fatal) + measure_growth(memory.aer, aer)
    memory = replace(memory, pcie_fatal=fatal, aer=aer)
    if not grown:
        return None, memory
    reason = f"{grown} uncorrected PCIe {'error' if grown == 1 else 'errors'} between two looks"
    return suspect("pcie-errors", reason, Remedy.CHECK_SLOT, _W, DAY), memory


def _judge_page_growth(
    sample: GpuSample, memory: LevelMemory, at: float, limits: HealthLimits
) -> tuple[Finding | None, LevelMemory]:
    """A board with many retired pages wears out while the number grows; a board that has stopped is left alone."""
    count, before = sample.retired_pages_double_bit, memory.retired_double_bit
    if count is None or (before is not None and before.count == count):
        return None, memory
    memory = replace(memory, retired_double_bit=CounterWindow(at=at, count=count))
    is_worn = before is not None and limits.retired_double_bit_pages_limit < before.count < count
    if before is None or not is_worn or at - before.at > limits.retired_double_bit_window_seconds:
        return None, memory
    days = limits.retired_double_bit_window_seconds / DAY
    reason = f"{count} memory pages are retired for double-bit errors, {count - before.count} within {days:g} days"
    return unhealthy("pages-failing", reason, Remedy.SERVICE, ReturnRule.SERVICE), memory


def _judge_storm(
    sample: GpuSample, memory: LevelMemory, at: float, limits: HealthLimits
) -> tuple[Finding | None, LevelMemory]:
    """Corrected errors are harmless until their number slows the memory down."""
    growth, minutes, window = _measure(memory.corrected, sample.ecc_corrected_volatile, at)
    stormy = memory.storm_minutes
    if minutes:
        is_stormy = growth > limits.corrected_errors_per_minute * minutes
        stormy = min(limits.corrected_errors_minutes, stormy + round(minutes)) if is_stormy else 0
    memory = replace(memory, corrected=window, storm_minutes=stormy)
    if stormy < limits.corrected_errors_minutes:
        return None, memory
    rate, minutes = limits.corrected_errors_per_minute, limits.corrected_errors_minutes
    reason = f"more than {rate} corrected memory errors a minute for {minutes} min"
    return suspect("ecc-storm", reason, Remedy.WATCH, _W, DAY), memory


def _measure(window: CounterWindow | None, count: int | None, at: float) -> tuple[int, float, CounterWindow | None]:
    """Growth and minutes once a minute is full, and the window to go on with."""
    if count is None:
        return 0, 0.0, window
    if window is None:
        return 0, 0.0, CounterWindow(at=at, count=count)
    minutes = (at - window.at) / MINUTE
    if minutes < 1:
        return 0, 0.0, window
    return measure_growth(window.count, count), minutes, CounterWindow(at=at, count=count)


def _judge_throttling(
    sample: GpuSample, memory: LevelMemory, at: float, limits: HealthLimits
) -> tuple[Finding | None, LevelMemory]:
    """Slowed down by hardware in most of the last minutes; unhealthy past the longer limit."""
    is_slow = bool((sample.clock_event_reasons or 0) & HARDWARE_SLOWDOWN)
    minutes, began = memory.throttled_minutes, memory.throttled_minute_at
    if began is None or at - began >= MINUTE:
        minutes, began = (*minutes, is_slow)[-limits.slowdown_window_minutes :], at
    elif is_slow:
        minutes = (*minutes[:-1], True)
    is_throttled = sum(minutes) >= limits.slowdown_minutes
    since = (memory.throttled_since_at if memory.throttled_since_at is not None else at) if is_throttled else None
    memory = replace(memory, throttled_minutes=minutes, throttled_minute_at=began, throttled_since_at=since)
    if since is None:
        return None, memory
    reason = f"slowed down by hardware in {sum(minutes)} of the last {len(minutes)} min"
    judged = unhealthy if at - since >= limits.slowdown_unhealthy_minutes * MINUTE else suspect
    return judged("throttled", reason, Remedy.CHECK_COOLING, _L), memory
