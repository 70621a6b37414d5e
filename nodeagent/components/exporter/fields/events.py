"""Fields with several series for each device: XIDs, windows of events, health watches."""

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import TypeAlias

from nodeagent.components.exporter.catalogue.field import Entity
from nodeagent.components.exporter.exposition import MetricType
from nodeagent.components.exporter.series.clock_events import ClockEvents
from nodeagent.components.exporter.series.health_watches import Incident
from nodeagent.components.exporter.series.xid_history import XidHistory
from nodeagent.components.exporter.series.xid_messages import describe_xid
from nodeagent.config.sections.cluster import MetricsSettings
from nodeagent.model.ids import GpuUuid

Extra: TypeAlias = tuple[dict[str, str], dict[str, str], float]
"""Labels and attributes of one series beside the device's own, and its value."""


@dataclass(frozen=True, slots=True)
class Happenings:
    """Remembered events of the node's GPUs."""

    now_seconds: float
    xids: XidHistory
    clock_events: ClockEvents
    metrics: MetricsSettings
    incidents: Mapping[GpuUuid, tuple[Incident, ...]] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class EventField:
    """A family with series from events."""

    name: str
    number: int
    type: MetricType
    help: str
    list_series: Callable[[Entity, Happenings], Iterator[Extra]]
    default: bool = False
    waits: bool = False
    """Whether it is absent until something has happened."""


def _last_xid(entity: Entity, happenings: Happenings) -> Iterator[Extra]:
    seen = happenings.xids.find_last(entity.gpu.uuid, entity.gpu_instance_id)
    if seen is not None:
        yield {}, {"err_code": str(seen.xid), "err_msg": describe_xid(seen.xid)}, seen.xid
    elif happenings.metrics.xid_zero_before_first:
        yield {}, {"err_code": "0", "err_msg": "No Error"}, 0


def _xid_window(entity: Entity, happenings: Happenings) -> Iterator[Extra]:
    window_seconds = happenings.metrics.xid_window_seconds
    since = happenings.now_seconds - window_seconds
    window = {"window_size_in_ms": str(int(window_seconds * 1000))}
    counts = happenings.xids.count_since(entity.gpu.uuid, since, entity.gpu_instance_id)
    if not counts:
        yield window, {}, 0
    for xid, count in sorted(counts.items()):
        yield {**window, "xid": str(xid)}, {}, count


def _clock_event_window(entity: Entity, happenings: Happenings) -> Iterator[Extra]:
    window_seconds = happenings.metrics.clock_events_window_seconds
    counts = happenings.clock_events.count(entity.gpu.uuid, happenings.now_seconds)
    for name, count in counts.items():
        yield {"window_size_in_ms": str(int(window_seconds * 1000)), "clock_event": name}, {}, count


def _health(entity: Entity, happenings: Happenings) -> Iterator[Extra]:
    for incident in happenings.incidents.get(entity.gpu.uuid, ()):
        yield {"health_watch": incident.watch, "health_error_code": incident.code}, {}, incident.result


EVENT_FIELDS = (
    EventField(
        "DCGM_FI_DEV_XID_ERRORS",
        230,
        "gauge",
        "Number of the last XID error; stays until restart. Absent before the first, unless a setting asks for 0.",
        _last_xid,
        default=True,
        waits=True,
    ),
    EventField(
        "DCGM_EXP_XID_ERRORS_COUNT", 9001, "gauge", "XID errors within the window; falls as they age.", _xid_window
    ),
    EventField(
        "DCGM_EXP_CLOCK_EVENTS_COUNT",
        9002,
        "gauge",
        "Samples within the window in which clocks were held back, by reason.",
        _clock_event_window,
    ),
    EventField(
        "DCGM_EXP_GPU_HEALTH_STATUS",
        9003,
        "gauge",
        "DCGM's health watches as NVML's readings bear them out: 0 pass, 10 warn, 20 fail.",
        _health,
    ),
)
