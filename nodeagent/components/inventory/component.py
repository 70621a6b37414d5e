"""Keeps the inventory true and the newest sample fresh.

Owns the one place that asks the `GpuSource` for hardware; everything else reads the bus.
Refuses to judge: whether a GPU is fit for work is the health component's decision.
"""

import anyio
from anyio.abc import TaskStatus

from nodeagent.components.inventory.diff import decide_inventory, diff_inventories
from nodeagent.components.inventory.problems import decide_problems
from nodeagent.components.inventory.reports import Reports
from nodeagent.config.live import LiveSettings
from nodeagent.kernel.bus import Bus
from nodeagent.kernel.conditions import Conditions
from nodeagent.kernel.log import get_logger
from nodeagent.kernel.news import News
from nodeagent.kernel.ticker import Ticker
from nodeagent.model.driver import DriverState
from nodeagent.model.errors import DriverError
from nodeagent.model.events import GpuEventReported
from nodeagent.model.gpu import Inventory
from nodeagent.model.ports import GpuSource
from nodeagent.model.telemetry import EventWatch

LAYOUT_EVENTS = frozenset({"mig_layout", "gpu_lost", "gpu_back", "bind", "unbind", "unavailable"})
"""Events after which the hardware is enumerated at once rather than at the next rescan."""
EVENTS_RETRY_SECONDS = 1.0
EVENTS_PROVEN_SECONDS = 10.0
"""A watch that has not ended for so long stands: nothing says so itself."""
FIRST_READ_RETRY_SECONDS = 1.0
SETTLE_SECONDS = 1.5
LEFT_BEHIND = "nvml-worker-left-behind"


class InventoryComponent:
    """Publishes `Inventory`, `NodeSample`, and what the driver reports by itself."""

    name = "inventory"

    def __init__(self, bus: Bus, conditions: Conditions, source: GpuSource, live: LiveSettings) -> None:
        self._bus, self._conditions, self._source, self._live = bus, conditions, source, live
        self._rescan = anyio.Event()
        self._log = get_logger(component=self.name)
        self._sampling_fails = False
        self._left_behind: tuple[int, ...] = ()
        self._reports = Reports()
        self._news = News()

    async def run(self, *, task_status: TaskStatus[None]) -> None:
        """Enumerate once, say ready, then rescan, sample and listen until cancelled."""
        await self._read_inventory_until_known()
        task_status.started()
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(self._rescan_forever, name="inventory rescan")
            tasks.start_soon(self._sample_forever, name="inventory sampling")
            tasks.start_soon(self._report_events_forever, name="inventory events")
            tasks.start_soon(self._rescan_on_driver_return, name="inventory driver watch")

    async def _read_inventory_until_known(self) -> None:
        with self._bus.watch(DriverState, client=f"{self.name} start") as states:
            while not await self._read_inventory():
                with anyio.move_on_after(FIRST_READ_RETRY_SECONDS):
                    await anext(states)

    async def _read_inventory(self) -> bool:
        """Enumerate; on failure the last inventory stays and the driver component says why."""
        try:
            readout = await self._source.read_inventory()
        except DriverError as error:
            self._log.warning("inventory_read_failed", reason=str(error))
            return False
        known = self._bus.latest(Inventory)
        before = known.value if known is not None else None
        after = decide_inventory(before, readout)
        if after is not before:
            self._publish(before, after)
        self._reports.forget_old(anyio.current_time())
        return True

    def _publish(self, before: Inventory | None, after: Inventory) -> None:
        """Say what there is now, and of each GPU what changed and why; a driver that is back explains the rest."""
        facts, reports = diff_inventories(before, after), self._reports.newest()
        causes = {fact.gpu: reports[fact.gpu] for fact in facts if fact.gpu in reports}
        cause = next(iter(causes.values()), None) or self._news.take(self._bus.latest(DriverState))
        envelope = self._bus.publish_state(after, source=self.name, cause=cause)
        for fact in facts:
            self._bus.publish_fact(fact, source=self.name, cause=causes.get(fact.gpu, envelope))
        for code, problems in decide_problems(after).items():
            self._conditions.replace(code, problems, cause=envelope)
        self._log.info("inventory_changed", generation=after.generation, gpus=len(after.gpus))

    async def _rescan_forever(self) -> None:
        pause = self._live.now.inventory.rescan_seconds
        while True:
            with anyio.move_on_after(pause):
                await self._rescan.wait()
            # What an event announced may take a moment to be all there: it is looked at once more soon after.
            was_asked = self._rescan.is_set()
            pause = SETTLE_SECONDS if was_asked else self._live.now.inventory.rescan_seconds
            self._rescan = anyio.Event()
            await self._read_inventory()

    async def _sample_forever(self) -> None:
        while True:
            period = self._live.now.inventory.sample_seconds
            async for _ in Ticker(period):
                await self._sample()
                if self._live.now.inventory.sample_seconds != period:
                    break

    async def _sample(self) -> None:
        try:
            sample = await self._source.read_sample()
        except DriverError as error:
            self._note_sampling_failed(error)
            return
        self._bus.publish_state(sample, source=self.name)
        self._note_left_behind(sample.access.left_behind if sample.access is not None else ())
        if self._sampling_fails:
            self._sampling_fails = False
            self._conditions.clear("sample-stale")
            self._log.info("sampling_recovered")

    def _note_left_behind(self, pids: tuple[int, ...]) -> None:
        if pids == self._left_behind:
            return
        self._left_behind = pids
        if pids:
            listed = ", ".join(map(str, pids))
            self._conditions.set(LEFT_BEHIND, detail=f"left behind: pid {listed}; another one took over its work")
        else:
            self._conditions.clear(LEFT_BEHIND)

    def _note_sampling_failed(self, error: DriverError) -> None:
        if not self._sampling_fails:
            self._sampling_fails = True
            self._log.warning("sampling_failed", reason=str(error))
        self._conditions.set("sample-stale", detail=str(error))

    async def _report_events_forever(self) -> None:
        while True:
            async with anyio.create_task_group() as proof:
                proof.start_soon(self._note_events_watched, name="inventory event watch")
                try:
                    await self._report_events()
                except DriverError as error:
                    self._log.debug("gpu_events_interrupted", reason=str(error))
                    self._bus.publish_state(EventWatch(watched=False, reason=str(error)), source=self.name)
                proof.cancel_scope.cancel()
            await anyio.sleep(EVENTS_RETRY_SECONDS)

    async def _report_events(self) -> None:
        async for event in self._source.events():
            now = anyio.current_time()
            cause = self._reports.find_cause(event.gpu, now)
            self._reports.note(event.gpu, self._bus.publish_fact(event, source=self.name, cause=cause).seq, now)
            if isinstance(event, GpuEventReported) and event.kind in LAYOUT_EVENTS:
                self._rescan.set()

    async def _note_events_watched(self) -> None:
        await anyio.sleep(EVENTS_PROVEN_SECONDS)
        self._bus.publish_state(EventWatch(watched=True), source=self.name)

    async def _rescan_on_driver_return(self) -> None:
        with self._bus.watch(DriverState, client=self.name) as states:
            async for envelope in states:
                if envelope.value.ready:
                    self._rescan.set()
