"""From one sample to all series about devices and pods; pure but for memory between samples."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field

from nodeagent.components.exporter.attribution.device_labels import make_device_labels
from nodeagent.components.exporter.attribution.entities import is_partitioned, list_boards, list_devices
from nodeagent.components.exporter.attribution.holders import Holders, find_holders, list_holders
from nodeagent.components.exporter.attribution.pod_accounts import PodAccounts
from nodeagent.components.exporter.catalogue.field import Entity, Identity
from nodeagent.components.exporter.catalogue.selection import Selection
from nodeagent.components.exporter.exposition import Block, render_families
from nodeagent.components.exporter.families.gpus import build_reading_families
from nodeagent.components.exporter.families.pod_labels import build_pod_label_families
from nodeagent.components.exporter.families.pods import build_pod_families
from nodeagent.components.exporter.fields.events import Happenings
from nodeagent.components.exporter.series.clock_events import ClockEvents
from nodeagent.components.exporter.series.device_series import Device, render_device_series
from nodeagent.components.exporter.series.health_watches import HealthWatches
from nodeagent.components.exporter.series.rates import RateCalculator
from nodeagent.components.exporter.series.xid_history import XidHistory
from nodeagent.config.sections.cluster import MetricsSettings
from nodeagent.model.allocation import AllocationTable, ClaimTable
from nodeagent.model.cluster import PodLabelTable
from nodeagent.model.driver import DriverState
from nodeagent.model.gpu import Inventory
from nodeagent.model.ports import ProcessPlace
from nodeagent.model.telemetry import NodeSample

CLOCK_EVENTS = "DCGM_EXP_CLOCK_EVENTS_COUNT"
HEALTH = "DCGM_EXP_GPU_HEALTH_STATUS"


@dataclass(frozen=True, slots=True)
class SeriesSelection:
    """The wanted series: the fields of the list, under the settings."""

    selection: Selection
    metrics: MetricsSettings = field(default_factory=MetricsSettings)
    host: str = ""


@dataclass(frozen=True, slots=True)
class Knowledge:
    """Facts about the node beside the sample."""

    inventory: Inventory
    driver: DriverState | None = None
    allocations: AllocationTable = field(default_factory=AllocationTable)
    places: Mapping[int, ProcessPlace] = field(default_factory=dict)
    claims: ClaimTable | None = None
    pod_labels: PodLabelTable | None = None


class NodeSeries:
    """Remembers earlier samples for rates, windows and totals."""

    def __init__(self) -> None:
        self.xids = XidHistory()
        self._rates, self._accounts = RateCalculator(), PodAccounts()
        self._clock_events, self._health = ClockEvents(), HealthWatches()

    def render(self, sample: NodeSample, known: Knowledge, requests: SeriesSelection) -> Iterator[Block]:
        """Add a sample and render the series, block by block, so that other tasks may run in between."""
        boards = list_boards(known.inventory, sample, self._rates.update(sample))
        devices = list_devices(boards)
        holders = _find_holders(known, requests) if requests.metrics.pod_attribution else {}
        happenings = self._note(boards, sample.time_seconds, requests)
        self._accounts.update(devices, holders, known.places, sample.time_seconds)
        yield from render_device_series(
            requests.selection.families,
            [_label(entity, known, holders, requests) for entity in devices],
            [_label(entity, known, {}, requests) for entity in boards if is_partitioned(entity.gpu)],
            happenings,
        )
        yield from render_families(build_reading_families(boards))
        metrics = requests.metrics
        if metrics.pod_attribution and metrics.processes:
            yield from render_families(build_pod_families(self._accounts.usages, devices, metrics))
        if metrics.pod_labels and known.pod_labels is not None:
            yield from render_families(build_pod_label_families(known.pod_labels, holders, metrics))

    def _note(self, boards: list[Entity], now_seconds: float, requests: SeriesSelection) -> Happenings:
        present = frozenset(board.gpu.uuid for board in boards)
        wanted = {family.field.name for family in requests.selection.families}
        self._clock_events.set_window(requests.metrics.clock_events_window_seconds)
        self._clock_events.forget(present)
        self._health.forget(present)
        incidents = {}
        for board in boards:
            gpu = board.gpu.uuid
            if CLOCK_EVENTS in wanted and board.board.clock_event_reasons is not None:
                self._clock_events.note(gpu, now_seconds, board.board.clock_event_reasons)
            if HEALTH in wanted:
                xids = self.xids.list_recent(gpu, now_seconds - requests.metrics.xid_window_seconds)
                incidents[gpu] = self._health.judge(board.board, now_seconds, xids)
        return Happenings(now_seconds, self.xids, self._clock_events, requests.metrics, incidents)


def _find_holders(known: Knowledge, requests: SeriesSelection) -> Holders:
    extra = requests.metrics.extra_resource_names
    return find_holders(known.allocations, extra, known.claims, known.inventory.gpus)


def _label(entity: Entity, known: Knowledge, holders: Holders, requests: SeriesSelection) -> Device:
    driver = known.driver
    identity = Identity(
        entity.gpu,
        driver.driver_version if driver is not None else "",
        driver.interface_version if driver is not None else "",
        driver.cuda_version if driver is not None else None,
    )
    selected, held_by = requests.selection.labels, list_holders(entity, holders)
    return Device(entity, make_device_labels(entity, identity, selected, held_by, requests.metrics, requests.host))
