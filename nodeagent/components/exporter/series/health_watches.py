"""DCGM's health watches, as far as the driver's readings allow; pure.

Owns the rules behind `DCGM_EXP_GPU_HEALTH_STATUS` and the last minute of readings. The watches are DCGM's judgement,
for existing dashboards; nodeagent's own judgement is the health report.
"""

from collections import deque
from collections.abc import Iterator
from dataclasses import dataclass
from math import ceil
from typing import Final

from nodeagent.model.ids import GpuUuid
from nodeagent.model.telemetry import GpuSample

PASS, WARN, FAIL = 0, 10, 20
WATCHES: Final = ("PCIE", "NVLINK", "PMU", "MCU", "MEM", "SM", "INFOROM", "THERMAL", "POWER", "DRIVER", "ALL")
OK: Final = "DCGM_FR_OK"
COMPARED_SECONDS: Final = 60.0
RETIRED_PAGES_MAX: Final = 63
REMAPPED_ROWS_MAX: Final = 512
_REPLAYS_PER_LANE: Final = {1: 0.15, 2: 0.3, 3: 0.48, 4: 0.96, 5: 1.92, 6: 3.84}
_XID: Final = "DCGM_FR_XID_ERROR"

_XID_RULES: Final[tuple[tuple[str, frozenset[int], int, str], ...]] = (
    ("PCIE", frozenset({38, 39, 42}), WARN, _XID),
    ("MEM", frozenset({31, 32, 43}), WARN, _XID),
    ("MEM", frozenset({63}), WARN, "DCGM_FR_PENDING_PAGE_RETIREMENTS"),
    ("MEM", frozenset({64}), FAIL, "DCGM_FR_ROW_REMAP_FAILURE"),
    ("THERMAL", frozenset({60}), WARN, "DCGM_FR_CLOCK_THROTTLE_THERMAL"),
    ("THERMAL", frozenset({61, 62}), WARN, _XID),
    ("POWER", frozenset({57}), WARN, "DCGM_FR_CLOCK_THROTTLE_POWER"),
    ("POWER", frozenset({54, 56, 58, 78}), WARN, _XID),
    ("NVLINK", frozenset({67, 73, 121, 137}), WARN, _XID),
    ("ALL", frozenset({94}), WARN, "DCGM_FR_UNKNOWN(131)"),
    ("ALL", frozenset({48, 74, 119, 120, 140}), FAIL, _XID),
    ("ALL", frozenset({95}), FAIL, "DCGM_FR_UNCONTAINED_ERROR"),
    ("ALL", frozenset({79}), FAIL, "DCGM_FR_FALLEN_OFF_BUS"),
)

_ACTIONS: Final = {
    1: (FAIL, "DCGM_FR_GPU_RECOVERY_RESET"),
    2: (FAIL, "DCGM_FR_GPU_RECOVERY_REBOOT"),
    3: (WARN, "DCGM_FR_GPU_RECOVERY_DRAIN_P2P"),
    4: (FAIL, "DCGM_FR_GPU_RECOVERY_DRAIN_RESET"),
}


@dataclass(frozen=True, slots=True)
class Incident:
    """The verdict of one watch."""

    watch: str
    result: int
    code: str


class HealthWatches:
    """Remembers a minute of samples, thinly."""

    def __init__(self) -> None:
        self._past: dict[GpuUuid, deque[tuple[float, GpuSample]]] = {}

    def judge(self, sample: GpuSample, now_seconds: float, xids: frozenset[int]) -> tuple[Incident, ...]:
        """All watches of one GPU; the worst finding of each."""
        past = self._past.setdefault(sample.uuid, deque())
        while len(past) > 1 and past[1][0] <= now_seconds - COMPARED_SECONDS:
            past.popleft()
        before = past[0][1] if past else sample
        # A reading every five seconds is enough to compare over a minute.
        if not past or now_seconds - past[-1][0] >= COMPARED_SECONDS / 12:
            past.append((now_seconds, sample))
        worst = {watch: Incident(watch, PASS, OK) for watch in WATCHES}
        for incident in (*_judge_xids(xids), *judge_readings(before, sample)):
            if incident.result > worst[incident.watch].result:
                worst[incident.watch] = incident
        return tuple(worst.values())

    def forget(self, keep: frozenset[GpuUuid]) -> None:
        """Drop GPUs outside the given set."""
        for gpu in self._past.keys() - keep:
            del self._past[gpu]


def _judge_xids(xids: frozenset[int]) -> Iterator[Incident]:
    for watch, numbers, result, code in _XID_RULES:
        if numbers & xids:
            yield Incident(watch, result, code)


def judge_readings(before: GpuSample, now: GpuSample) -> Iterator[Incident]:
    """Findings of the readings against the readings of about a minute ago."""
    if now.lost:
        yield Incident("ALL", FAIL, "DCGM_FR_FALLEN_OFF_BUS")
        return
    yield from _judge_memory(now)
    yield from _judge_links(before, now)
    if now.recovery_action in _ACTIONS:
        yield Incident("DRIVER", *_ACTIONS[now.recovery_action])
    if _rise(before.thermal_violation_nanoseconds, now.thermal_violation_nanoseconds):
        yield Incident("THERMAL", WARN, "DCGM_FR_CLOCK_THROTTLE_THERMAL")
    if _rise(before.power_violation_nanoseconds, now.power_violation_nanoseconds):
        yield Incident("POWER", WARN, "DCGM_FR_CLOCK_THROTTLE_POWER")
    if now.power_milliwatts is None:
        yield Incident("POWER", WARN, "DCGM_FR_POWER_UNREADABLE")


def _judge_memory(now: GpuSample) -> Iterator[Incident]:
    if now.ecc_uncorrected_volatile:
        yield Incident("MEM", FAIL, "DCGM_FR_VOLATILE_DBE_DETECTED")
    if now.remapped_rows_failed:
        yield Incident("MEM", FAIL, "DCGM_FR_ROW_REMAP_FAILURE")
    if (now.retired_pages_single_bit or 0) + (now.retired_pages_double_bit or 0) >= RETIRED_PAGES_MAX:
        yield Incident("MEM", FAIL, "DCGM_FR_RETIRED_PAGES_LIMIT")
    if (now.remapped_rows_uncorrectable or 0) >= REMAPPED_ROWS_MAX:
        yield Incident("MEM", WARN, "DCGM_FR_UNKNOWN(132)")
    if now.retired_pages_pending:
        yield Incident("MEM", WARN, "DCGM_FR_PENDING_PAGE_RETIREMENTS")


def _judge_links(before: GpuSample, now: GpuSample) -> Iterator[Incident]:
    if now.pcie_generation in _REPLAYS_PER_LANE and now.pcie_width:
        allowed = ceil(_REPLAYS_PER_LANE[now.pcie_generation] * now.pcie_width)
        if _rise(before.pcie_replay_count, now.pcie_replay_count) > allowed:
            yield Incident("PCIE", WARN, "DCGM_FR_PCI_REPLAY_RATE")
    if before.nvlinks_active is not None and (now.nvlinks_active or 0) < before.nvlinks_active:
        yield Incident("NVLINK", FAIL, "DCGM_FR_NVLINK_DOWN")
    if _rise(before.nvlink_replay_count, now.nvlink_replay_count) or _rise(
        before.nvlink_recovery_count, now.nvlink_recovery_count
    ):
        yield Incident("NVLINK", FAIL, "DCGM_FR_NVLINK_ERROR_CRITICAL")
    errors = _rise(before.nvlink_crc_flit_count, now.nvlink_crc_flit_count) + _rise(
        before.nvlink_crc_data_count, now.nvlink_crc_data_count
    )
    if errors >= 100 * COMPARED_SECONDS:
        yield Incident("NVLINK", FAIL, "DCGM_FR_NVLINK_CRC_ERROR_THRESHOLD")
    elif errors:
        yield Incident("NVLINK", WARN, "DCGM_FR_NVLINK_ERROR_THRESHOLD")


def _rise(before: int | None, now: int | None) -> int:
    """How much a total grew; a reset total has not grown."""
    return max(0, now - before) if before is not None and now is not None else 0
