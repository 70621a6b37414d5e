"""Renders GPU metrics once for each sample, and answers scrapes with rendered blocks.

Owns the body of `/metrics`. Scrapes are answered while other components fail, also while the exporter itself is
restarted, so an answer only joins rendered blocks: no question to hardware, kubelet or files.
"""

import resource
import time
from collections.abc import Callable, Mapping, Sequence
from typing import NamedTuple

import anyio
from anyio.abc import TaskStatus
from anyio.lowlevel import checkpoint

from nodeagent.components.exporter.attribution.entities import find_lost
from nodeagent.components.exporter.catalogue.all_fields import list_readings
from nodeagent.components.exporter.catalogue.selection import Selection, parse_selection, select_defaults
from nodeagent.components.exporter.exposition import (
    Block,
    Family,
    RememberedBlocks,
    render_families,
)
from nodeagent.components.exporter.families.admission import (
    build_claim_families,
    build_repair_families,
    build_signal_families,
    build_upgrade_families,
)
from nodeagent.components.exporter.families.agent import (
    AgentFacts,
    ExporterFacts,
    build_agent_families,
)
from nodeagent.components.exporter.families.devices import build_device_families
from nodeagent.components.exporter.families.fractions import build_fraction_families
from nodeagent.components.exporter.families.gpus import (
    build_cordon_families,
    build_mig_families,
    build_mps_families,
    build_proof_families,
    build_standing_families,
)
from nodeagent.components.exporter.families.node_status import (
    NodeStatus,
    build_status_families,
    count_advertised,
    does_driver_work,
)
from nodeagent.components.exporter.other_names_task import OtherNames
from nodeagent.components.exporter.scrape import (
    OPENMETRICS_TYPE,
    TEXT_TYPE,
    RenderedBlocks,
    join_scrape,
    wants_gzip,
    wants_openmetrics,
)
from nodeagent.components.exporter.series.node_series import Knowledge, NodeSeries, SeriesSelection
from nodeagent.config.live import LiveSettings
from nodeagent.core.channels.bus import Bus
from nodeagent.core.children.worker_thread import WorkerThread
from nodeagent.core.clock import Clock
from nodeagent.core.conditions import Conditions
from nodeagent.core.errors import WorkerError
from nodeagent.core.introspect import Introspection, count_descriptors, read_resident_bytes
from nodeagent.core.life.gates import Gates
from nodeagent.core.life.report import ComponentReport
from nodeagent.core.life.ticker import until_beat
from nodeagent.core.log.lines import get_logger
from nodeagent.edge.host.errors import HostError
from nodeagent.edge.host.files.atomic_file import read_bounded
from nodeagent.edge.http.messages import Answer, Request, Response
from nodeagent.model.allocation import AllocationTable, ClaimTable
from nodeagent.model.claims import ReadyClaims
from nodeagent.model.cluster import ApiCall, PodConditionCounts, PodEventCounts, PodLabelTable, ReceiptCounts
from nodeagent.model.devices import DeviceReadingTable, DeviceTable
from nodeagent.model.driver import DriverState
from nodeagent.model.events import XidReported
from nodeagent.model.fractions import FractionDecisions
from nodeagent.model.gpu import Inventory
from nodeagent.model.health import HealthReport
from nodeagent.model.mig import MigState
from nodeagent.model.mps import MpsState
from nodeagent.model.offering import Offering
from nodeagent.model.plugin import AdmissionFacts, PluginState
from nodeagent.model.ports import ProcessPlace, ProcessPlaces
from nodeagent.model.proof import GpuProofs
from nodeagent.model.repairs import RepairState
from nodeagent.model.runtime import RuntimeState
from nodeagent.model.slices import PublishedSlices
from nodeagent.model.telemetry import NodeSample
from nodeagent.model.upgrades import UpgradeState
from nodeagent.model.usage import FractionUsage

FIELDS_FILE_BYTES_MAX = 1024 * 1024
FIELDS_FILE_POLL_SECONDS = 5.0
READ_SECONDS = 2.0
NO_DAEMONS, NO_GPUS = MpsState(), Inventory(generation=0)
SHARED_SECONDS = 0.1
UNUSABLE = "metrics-fields-unusable"
SLICE_SECONDS = 0.0005
"""Rendering lets others run after so long: an Allocate must not wait for the metrics of a hundred MIG devices."""


class AgentCounts(NamedTuple):
    """Counts of other parts of the agent."""

    report: Callable[[], Sequence[ComponentReport]]
    """The lives of the components."""
    count_api_calls: Callable[[], Mapping[ApiCall, int]] = dict
    read_admission: Callable[[], AdmissionFacts | None] = lambda: None


class AgentFactsSource:
    """The agent's own facts, gathered anew for each scrape."""

    def __init__(
        self,
        bus: Bus,
        gates: Gates,
        conditions: Conditions,
        clock: Clock,
        introspection: Introspection,
        counts: AgentCounts,
        *,
        version: str,
        started_seconds: float,
    ) -> None:
        self._bus, self._gates, self._conditions, self._clock = bus, gates, conditions, clock
        self._introspection, self._counts = introspection, counts
        self._version, self.started_seconds = version, started_seconds

    def gather(self, exporter: ExporterFacts) -> AgentFacts:
        """Gather the facts."""
        sample, plugin, now = self._bus.read(NodeSample), self._bus.read(PluginState), self._clock.wall()
        usage, statistics = resource.getrusage(resource.RUSAGE_SELF), self._bus.statistics()
        return AgentFacts(
            version=self._version,
            now_seconds=now,
            driver_ready=bool(does_driver_work(self._bus.read(DriverState), sample, now)),
            gates=self._gates.states(),
            components=tuple(self._counts.report()),
            conditions=self._conditions.active(),
            listeners=statistics.listeners,
            bus_published=statistics.published,
            loop_lag=self._introspection.lag(),
            inventory=self._bus.read(Inventory) or NO_GPUS,
            sample=sample,
            account=plugin.account if plugin is not None else None,
            api_calls=self._counts.count_api_calls(),
            resident_bytes=read_resident_bytes(),
            open_fds=count_descriptors(),
            cpu_seconds=usage.ru_utime + usage.ru_stime,
            start_time_seconds=self.started_seconds,
            exporter=exporter,
            admission=self._counts.read_admission(),
        )


class Exporter:
    """Follows samples and XIDs; `answer` is the handler of `/metrics`."""

    name = "exporter"

    def __init__(
        self,
        bus: Bus,
        conditions: Conditions,
        clock: Clock,
        live: LiveSettings,
        agent: AgentFactsSource,
        places: ProcessPlaces | None,
        *,
        host: str,
        want: Callable[[tuple[str, ...]], None] = lambda _names: None,
    ) -> None:
        """`want` takes the readings that the list of fields needs beside the ordinary sample."""
        self._want = want
        self._bus, self._conditions, self._clock, self._live = bus, conditions, clock, live
        self._agent, self._places, self._host = agent, places, host
        self.other_names = OtherNames(bus, clock, host)
        self._selection = select_defaults()
        self._read_file: tuple[str, bytes] | None = None
        self._series = NodeSeries()
        self._part, self._rendered_seconds = RenderedBlocks(), 0.0
        self._shared: dict[tuple[bool, bool], tuple[RenderedBlocks, float, bytes]] = {}
        self._standing_key: tuple[object, ...] = ()
        self._standing: list[Block] = []
        self._own_blocks = RememberedBlocks()
        self._driver_ready_seconds: float | None = None
        self._devices_seen_seconds: float | None = None
        self._scrapes = self._renders = self._heard = 0
        self._scrape_seconds = self._render_seconds = 0.0
        self._log = get_logger(component=self.name)

    async def run(self, *, task_status: TaskStatus[None]) -> None:
        """Read the list of fields, then render until cancelled."""
        reader = WorkerThread("metrics fields reader")
        try:
            await self._read_fields(reader)
            async with anyio.create_task_group() as tasks:
                tasks.start_soon(self._follow_xids, name="exporter XIDs")
                tasks.start_soon(self._follow_samples, name="exporter samples")
                tasks.start_soon(self._watch_fields, reader, name="exporter fields")
                task_status.started()
        finally:
            reader.close()

    async def answer(self, request: Request) -> Answer:
        """One scrape."""
        began = time.perf_counter()
        openmetrics = wants_openmetrics(request.headers.get("accept", ""))
        gzip = wants_gzip(request.headers.get("accept-encoding", ""))
        body = self._share(openmetrics=openmetrics, gzip=gzip)
        self._scrapes += 1
        self._scrape_seconds += time.perf_counter() - began
        headers = {"Vary": "Accept, Accept-Encoding", **({"Content-Encoding": "gzip"} if gzip else {})}
        return Response(body, content_type=OPENMETRICS_TYPE if openmetrics else TEXT_TYPE, headers=headers)

    def _share(self, *, openmetrics: bool, gzip: bool) -> bytes:
        """Concurrent scrapes share one answer: several replicas of Prometheus, or a client without bounds."""
        now, part = self._clock.monotonic(), self._part
        shared = self._shared.get((openmetrics, gzip))
        if shared is not None and shared[0] is part and now - shared[1] < SHARED_SECONDS:
            return shared[2]
        body = self.render(openmetrics=openmetrics, gzip=gzip)
        self._shared[openmetrics, gzip] = (part, now, body)
        return body

    def render(self, *, openmetrics: bool = False, gzip: bool = False) -> bytes:
        """The exposition now."""
        is_stale = self._is_stale()
        facts = ExporterFacts(
            scrapes=self._scrapes,
            scrape_seconds=self._scrape_seconds,
            renders=self._renders,
            render_seconds=self._render_seconds,
            series_bytes=len(self._part.text),
            unusable_fields=len(self._selection.problems),
            is_stale=is_stale,
        )
        own = (
            *build_agent_families(self._agent.gather(facts)),
            *build_status_families(self._read_status()),
            *self._build_fractions(),
            *build_cordon_families(self._bus.read(Offering) or Offering()),
            *build_mps_families(self._bus.read(MpsState) or NO_DAEMONS),
            *self._build_devices(),
            *self._build_mig(),
            *build_claim_families(self._bus.read(ReadyClaims), self._bus.read(PublishedSlices)),
            *build_signal_families(
                self._bus.read(PodEventCounts), self._bus.read(PodConditionCounts), self._bus.read(ReceiptCounts)
            ),
            *build_repair_families(self._bus.read(RepairState)),
            *build_upgrade_families(self._bus.read(UpgradeState)),
            *build_proof_families(self._bus.read(GpuProofs), self._bus.read(Inventory)),
        )
        fresh = [*self._render_standing(), *self._own_blocks.render(own)]
        return join_scrape(RenderedBlocks() if is_stale else self._part, fresh, openmetrics=openmetrics, gzip=gzip)

    def _is_stale(self) -> bool:
        age = self._clock.wall() - self._rendered_seconds
        return bool(self._rendered_seconds) and age > self._live.now.metrics.stale_after_seconds

    def _render_standing(self) -> list[Block]:
        inventory, health = self._bus.latest(Inventory), self._bus.latest(HealthReport)
        sample = self._bus.read(NodeSample)
        lost = frozenset(find_lost(sample.gpus)) if sample is not None else frozenset()
        key = (inventory and inventory.seq, health and health.seq, self._series.xids.revision, lost)
        if key != self._standing_key:
            self._standing_key = key
            self._standing = render_families(
                build_standing_families(
                    inventory.value if inventory is not None else None,
                    health.value if health is not None else None,
                    self._series.xids,
                    frozenset(str(uuid) for uuid in lost),
                )
            )
        return self._standing

    def _build_mig(self) -> tuple[Family, ...]:
        state = self._bus.read(MigState)
        return build_mig_families(state, self._bus.read(Inventory)) if state is not None else ()

    def _build_fractions(self) -> tuple[Family, ...]:
        usage = self._bus.read(FractionUsage)
        if usage is None or not self._live.now.metrics.pod_attribution:
            return ()
        reasons = self._bus.read(FractionDecisions)
        overruled = reasons.overruled if reasons is not None else {}
        return build_fraction_families(usage, self._live.now.metrics, overruled)

    def _build_devices(self) -> tuple[Family, ...]:
        table = self._bus.read(DeviceTable)
        if table is None:
            return ()
        return build_device_families(table, self._bus.read(AllocationTable), self._bus.read(DeviceReadingTable))

    def _read_status(self) -> NodeStatus:
        driver, plugin, now = self._bus.read(DriverState), self._bus.read(PluginState), self._clock.wall()
        driver_works = does_driver_work(driver, self._bus.read(NodeSample), now)
        if driver_works:
            self._driver_ready_seconds = now
        if plugin is not None and count_advertised(plugin):
            self._devices_seen_seconds = now
        return NodeStatus(
            started_seconds=self._agent.started_seconds,
            node=self._host,
            driver_works=driver_works,
            runtime=self._bus.read(RuntimeState),
            plugin=plugin,
            inventory=self._bus.read(Inventory),
            driver_ready_seconds=self._driver_ready_seconds,
            devices_seen_seconds=self._devices_seen_seconds,
            cuda_tested=self._live.now.driver.cuda_smoke_test,
        )

    # Following the node ------------------------------------------------------------------------------------------

    async def _follow_xids(self) -> None:
        with self._bus.listen(XidReported, client=self.name, after=self._heard) as events:
            async for envelope in events:
                self._heard = envelope.seq
                self._series.xids.note(envelope.value, envelope.time)

    async def _follow_samples(self) -> None:
        with self._bus.watch(NodeSample, client=self.name) as samples:
            async for envelope in samples:
                inventory = self._bus.read(Inventory)
                if inventory is not None and not envelope.retracted:
                    await self._render(envelope.value, inventory)

    async def _render(self, sample: NodeSample, inventory: Inventory) -> None:
        known = Knowledge(
            inventory=inventory,
            driver=self._bus.read(DriverState),
            allocations=self._bus.read(AllocationTable) or AllocationTable(),
            places=await self._read_places(sample),
            claims=self._bus.read(ClaimTable),
            pod_labels=self._bus.read(PodLabelTable),
        )
        requests = SeriesSelection(self._selection, self._live.now.metrics, self._host)
        blocks: list[Block] = []
        began = time.perf_counter()
        for block in self._series.render(sample, known, requests):
            blocks.append(block)
            spent = time.perf_counter() - began
            if spent > SLICE_SECONDS:
                self._render_seconds += spent
                await checkpoint()
                began = time.perf_counter()
        self._part, self._rendered_seconds = RenderedBlocks(blocks), sample.time_seconds
        self._renders += 1
        self._render_seconds += time.perf_counter() - began

    async def _read_places(self, sample: NodeSample) -> dict[int, ProcessPlace]:
        metrics = self._live.now.metrics
        if self._places is None or not (metrics.pod_attribution and metrics.processes):
            return {}
        pids = sorted({pid for gpu in sample.gpus for pid in gpu.pids})
        return dict(await self._places.read_places(pids))

    # The list of fields ------------------------------------------------------------------------------------------

    async def _watch_fields(self, reader: WorkerThread) -> None:
        while True:
            await anyio.sleep(until_beat(FIELDS_FILE_POLL_SECONDS))
            await self._read_fields(reader)

    async def _read_fields(self, reader: WorkerThread) -> None:
        """Read the list of fields anew; an unreadable list leaves the previous list in force."""
        path = self._live.now.metrics.fields_file
        if path is None:
            return
        try:
            content = await reader.run(
                lambda: read_bounded(path, limit_bytes=FIELDS_FILE_BYTES_MAX),
                timeout_seconds=READ_SECONDS,
                what="reading the list of fields",
            )
        except (HostError, WorkerError) as error:
            # Whatever comes back is taken anew, the same too: only that takes this off, and tells its own lines again.
            self._read_file = None
            self._conditions.replace(UNUSABLE, {str(path): str(error)})
            return
        if self._read_file != (str(path), content):
            self._read_file = (str(path), content)
            self._take_selection(str(path), parse_selection(content.decode("utf-8", "replace")))

    def _take_selection(self, path: str, selection: Selection) -> None:
        self._selection = selection
        self._want(list_readings(one.field for one in selection.families))
        self._conditions.replace(
            UNUSABLE,
            {f"{path}:{problem.line}": f"{problem.text[:80]}: {problem.reason}" for problem in selection.problems},
        )
        self._log.info("fields_read", path=path, used=len(selection.families), unusable=len(selection.problems))
