"""Keeps the inventory true and the newest sample fresh.

Owns the only calls of the `GpuSource` for hardware; other components read the bus. Owns the list of present and former
GPUs, which outlives the agent.
Refuses to judge: the fitness of a GPU is the health component's decision.
"""

import anyio
from anyio.abc import TaskStatus
from msgspec import DecodeError
from msgspec.structs import replace

from nodeagent.components.inventory.diff import decide_inventory, diff_inventories
from nodeagent.components.inventory.expected import Expectation, decide_expectation
from nodeagent.components.inventory.gpu_store import (
    GpuStore,
    decode_gpu_store,
    encode_gpu_store,
    find_stored,
    list_stored,
)
from nodeagent.components.inventory.problems import decide_problems
from nodeagent.components.inventory.reports import Reports, WorkerRestarts
from nodeagent.config.live import LiveSettings
from nodeagent.core.channels.bus import Bus
from nodeagent.core.channels.mailbox import Waker
from nodeagent.core.channels.news import News
from nodeagent.core.clock import Clock
from nodeagent.core.conditions import Conditions
from nodeagent.core.life.orders import OrderHandlers
from nodeagent.core.life.ticker import Ticker
from nodeagent.core.log.lines import get_logger
from nodeagent.edge.host.files.sealed_store import SealedStore
from nodeagent.model.cluster import ClusterNode
from nodeagent.model.driver import DriverPhase, DriverState
from nodeagent.model.errors import ControlRefused, DriverError
from nodeagent.model.events import (
    ConfigurationReloaded,
    GpuEventReported,
    GpuForgotten,
    GpuSeenStale,
    MigChangeEnded,
)
from nodeagent.model.gpu import GpuReadout, Inventory, StoredGpu
from nodeagent.model.orders import FORGET_GPU, ForgetCommand
from nodeagent.model.ports import GpuSource
from nodeagent.model.telemetry import EventWatch, NodeSample

LAYOUT_EVENTS = frozenset({"mig_layout", "gpu_lost", "gpu_back", "bind", "unbind", "unavailable"})
"""Events after which the hardware is enumerated at once rather than at the next rescan."""
EVENTS_RETRY_SECONDS = 1.0
EVENTS_PROVEN_SECONDS = 10.0
"""A watch that has not ended for so long stands: nothing says so itself."""
FIRST_READ_RETRY_SECONDS = 1.0
FIRST_SAMPLE_SECONDS = 10.0
"""How long the first sample is waited for before its absence is said."""
SETTLE_SECONDS = 1.5
STALE, UNREAD = "sample-stale", "inventory-stale"
LEFT_BEHIND = "nvml-worker-left-behind"
RESTARTS = "nvml-worker-restarts"
NOT_REMEMBERED = "gpus-not-remembered"
LIST_LOST = "gpus-list-lost"
LABEL_UNREADABLE = "gpus-expected-label-unreadable"


class InventoryComponent:
    """Publishes `Inventory`, `NodeSample`, and the driver's own reports."""

    name = "inventory"

    def __init__(
        self,
        bus: Bus,
        conditions: Conditions,
        clock: Clock,
        source: GpuSource,
        live: LiveSettings,
        store: SealedStore,
        orders: OrderHandlers,
    ) -> None:
        """`store` keeps known GPUs over restarts."""
        self._bus, self._conditions, self._clock, self._source, self._live = bus, conditions, clock, source, live
        self._store, self._orders = store, orders
        self._known: tuple[StoredGpu, ...] = ()
        self._stored = GpuStore(source="")
        self._expected = Expectation()
        self._remembered_label: int | None = None
        self._rescan = anyio.Event()
        self._read_after = 0
        """The number of the driver's word that was newest when the hardware was last read."""
        self._log = get_logger(component=self.name)
        self._sampling_trouble = ""
        self._fresh_until = 0.0
        """On the loop's clock."""
        self._patience, self._sampled = anyio.CancelScope(), Waker()
        self._reports, self._restarts = Reports(), WorkerRestarts()
        self._news = News()

    async def run(self, *, task_status: TaskStatus[None]) -> None:
        """Enumerate once, say ready, then rescan, sample and listen until cancelled."""
        try:
            self._known = await self._read_stored()
            await self._wait_anything_known()
            await self._read_inventory_until_known()
            task_status.started()
            with self._orders.carrying_out(FORGET_GPU, self.forget_gpu):
                await self._keep()
        finally:
            self._store.close()

    async def forget_gpu(self, command: ForgetCommand) -> str:
        """No longer miss a GPU that has vanished, on a person's word.

        Raises:
            ControlRefused: No such GPU is missed.
        """
        missed = tuple(one for one in self._known if one.gone_since_seconds is not None)
        gone = find_stored(missed, command.gpu)
        if gone is None:
            listed = ", ".join(f"GPU {one.index} ({one.uuid})" for one in missed)
            raise ControlRefused(f"no GPU {command.gpu} is missed: {listed or 'none is'}")
        self._known = tuple(one for one in self._known if one is not gone)
        self._bus.publish_fact(GpuForgotten(gpu=gone.uuid, who=command.who), source=self.name)
        self._log.warning("gpu_forgotten", gpu=gone.uuid, who=command.who)
        await self._read_inventory()
        await self._remember()
        return f"GPU {gone.index} ({gone.uuid}) is gone for good: it is no longer missed"

    async def _keep(self) -> None:
        self._fresh_until = anyio.current_time() + FIRST_SAMPLE_SECONDS
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(self._rescan_forever, name="inventory rescan")
            tasks.start_soon(self._rescan_on_reload, name="inventory settings")
            tasks.start_soon(self._rescan_on_cut, name="inventory MIG changes")
            tasks.start_soon(self._rescan_on_label, name="inventory label")
            tasks.start_soon(self._sample_forever, name="inventory sampling")
            tasks.start_soon(self._report_age, name="inventory age of readings")
            tasks.start_soon(self._report_events_forever, name="inventory events")
            tasks.start_soon(self._rescan_on_driver_return, name="inventory driver watch")

    async def _wait_anything_known(self) -> None:
        """Wait for a driver; a driver without hardware is enough on a node that should have GPUs."""
        with self._bus.watch_all(DriverState, ClusterNode, client=f"{self.name} wait") as changes:
            while not self._is_anything_known():
                await anext(changes)

    def _is_anything_known(self) -> bool:
        driver = self._bus.read(DriverState)
        should_be = bool(self._known) or bool(self._read_expected().count)
        if driver is None or driver.ready:
            return driver is not None
        return driver.is_done_without or (should_be and self._has_no_hardware())

    def _has_no_hardware(self) -> bool:
        driver = self._bus.read(DriverState)
        return driver is not None and driver.phase is DriverPhase.NO_HARDWARE

    def _is_done_without(self) -> bool:
        driver = self._bus.read(DriverState)
        return driver is not None and driver.is_done_without

    async def _read_inventory_until_known(self) -> None:
        with self._bus.watch(DriverState, client=f"{self.name} start") as states:
            while not await self._read_inventory():
                with anyio.move_on_after(FIRST_READ_RETRY_SECONDS):
                    await anext(states)

    async def _read_inventory(self) -> bool:
        """Enumerate; on failure the last inventory stays, and where the driver works otherwise a condition says so."""
        self._expected = self._read_expected()
        self._conditions.show(LABEL_UNREADABLE, self._expected.problem)
        readout = await self._read_hardware()
        if readout is None:
            return False
        before = self._bus.read(Inventory)
        now_seconds = self._clock.wall()
        after = decide_inventory(before, readout, known=self._known, expected=self._expected, now_seconds=now_seconds)
        if after is not before:
            self._publish(before, after)
        self._known = list_stored(after)
        self._reports.forget_old(anyio.current_time())
        return True

    async def _read_hardware(self) -> GpuReadout | None:
        driver = self._bus.latest(DriverState)
        try:
            readout = await self._source.read_inventory()
        except DriverError as error:
            if self._has_no_hardware():
                self._conditions.clear(UNREAD)
                return GpuReadout()
            self._log.warning("inventory_read_failed", reason=str(error))
            self._conditions.set(UNREAD, detail=str(error))
            return None
        self._read_after = driver.seq if driver is not None else 0
        self._conditions.clear(UNREAD)
        return readout

    def _publish(self, before: Inventory | None, after: Inventory) -> None:
        """Publish the inventory, and for each GPU the change and the cause; a driver that is back explains the rest."""
        facts, reports = diff_inventories(before, after), self._reports.newest()
        causes = {fact.gpu: reports[fact.gpu] for fact in facts if fact.gpu in reports}
        cause = next(iter(causes.values()), None) or self._news.take(self._bus.latest(DriverState))
        envelope = self._bus.publish_state(after, source=self.name, cause=cause)
        for fact in facts:
            self._bus.publish_fact(fact, source=self.name, cause=causes.get(fact.gpu, envelope))
        for code, problems in decide_problems(after).items():
            self._conditions.replace(code, problems, cause=envelope)
        self._log.info("inventory_changed", generation=after.generation, gpus=len(after.gpus))

    async def _read_stored(self) -> tuple[StoredGpu, ...]:
        """The GPUs of the stored list; empty without a list, or with a list of another source."""
        stored = await self._store.read()
        troubles = list(stored.troubles)
        if stored.body is not None:
            try:
                self._stored = decode_gpu_store(stored.body)
            except DecodeError as error:
                reason = f"cannot read the list of known GPUs: {error}: it is moved aside"
                troubles.append(await self._store.discard(reason))
        if troubles:
            self._log.error("known_gpus_unusable", troubles=troubles)
            self._conditions.set(LIST_LOST, detail="; ".join(troubles))
        if self._stored.source != self._live.now.gpus.source:
            return ()
        self._remembered_label = self._stored.expected_by_label
        return self._stored.gpus

    async def _remember(self) -> None:
        """Write the list if the stored list differs; a failed write is repeated at each scan."""
        source, by_label = self._live.now.gpus.source, self._expected.by_label
        roster = GpuStore(source=source, gpus=self._known, expected_by_label=by_label)
        if roster == self._stored:
            return
        trouble = await self._store.write(encode_gpu_store(roster))
        if trouble:  # pragma: no cover - tested; Python 3.11 traces no frame that an exception resumes
            self._conditions.set(NOT_REMEMBERED, detail=trouble)
        else:
            self._stored = roster
            self._conditions.clear(NOT_REMEMBERED)

    async def _rescan_forever(self) -> None:
        await self._remember()  # what the first look found, while nobody waits for the disk any more
        pause = SETTLE_SECONDS
        while True:
            with anyio.move_on_after(pause):
                await self._rescan.wait()
            # What a start or an event found may take a moment to be all there: it is looked at once more soon after.
            was_asked = self._rescan.is_set()
            pause = SETTLE_SECONDS if was_asked else self._live.now.inventory.rescan_seconds
            self._rescan = anyio.Event()
            if await self._read_inventory():
                await self._remember()

    async def _sample_forever(self) -> None:
        while True:
            period = self._live.now.inventory.sample_seconds
            async for _ in Ticker(period):  # pragma: no branch - a ticker has no end
                await self._sample()
                if self._live.now.inventory.sample_seconds != period:
                    break

    async def _sample(self) -> None:
        if self._has_no_hardware():
            return
        try:
            sample = await self._source.read_sample()
        except DriverError as error:
            self._note_sampling_failed(error)
            return
        sample = replace(sample, period_seconds=self._live.now.inventory.sample_seconds)
        self._bus.publish_state(sample, source=self.name)
        self._note_sampled(sample)
        self._conditions.show(RESTARTS, self._restarts.judge(sample.access, self._clock.monotonic()))
        self._note_left_behind(sample.access.left_behind if sample.access is not None else ())

    def _note_left_behind(self, pids: tuple[int, ...]) -> None:
        listed = ", ".join(map(str, pids))
        detail = f"left behind: pid {listed}; another one took over its work" if pids else ""
        self._conditions.show(LEFT_BEHIND, detail)

    def _note_sampled(self, sample: NodeSample) -> None:
        self._fresh_until = anyio.current_time() + sample.fresh_seconds - sample.took_seconds
        self._patience.deadline = self._fresh_until
        self._sampled.wake()
        self._conditions.clear(STALE)
        if self._sampling_trouble:
            self._sampling_trouble = ""
            self._log.info("sampling_recovered")

    def _note_sampling_failed(self, error: DriverError) -> None:
        if not self._sampling_trouble:
            self._log.warning("sampling_failed", reason=str(error))
        self._sampling_trouble = str(error)
        self._note_if_old()

    async def _report_age(self) -> None:
        """Report old readings: a driver that hangs may take longer to fail than readings take to age."""
        while True:
            # Each sample moves the deadline, so that nobody is woken while they come.
            with anyio.CancelScope(deadline=self._fresh_until) as self._patience:
                await anyio.sleep_forever()
            self._note_if_old()
            await self._sampled.wait()

    def _note_if_old(self) -> None:
        if anyio.current_time() >= self._fresh_until and not self._is_done_without():
            self._conditions.set(STALE, detail=self._sampling_trouble or "the newest look has not come back yet")

    async def _report_events_forever(self) -> None:
        while True:
            await self._wait_needed()
            async with anyio.create_task_group() as proof:
                proof.start_soon(self._note_events_watched, name="inventory event watch")
                try:
                    await self._report_events()
                except DriverError as error:
                    self._log.debug("gpu_events_interrupted", reason=str(error))
                    self._bus.publish_state(EventWatch(watched=False, reason=str(error)), source=self.name)
                proof.cancel_scope.cancel()
            await anyio.sleep(EVENTS_RETRY_SECONDS)

    async def _wait_needed(self) -> None:
        """Wait until the node needs driver reports: a node without GPUs that needs none has no event watch."""
        with self._bus.watch(DriverState, client=f"{self.name} need") as states:
            async for state in states:
                if not state.value.is_done_without:
                    return

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

    async def _rescan_on_reload(self) -> None:
        with self._bus.listen(ConfigurationReloaded, client=f"{self.name} settings") as reloads:
            async for _ in reloads:
                self._rescan.set()

    async def _rescan_on_cut(self) -> None:
        with self._bus.listen(MigChangeEnded, GpuSeenStale, client=f"{self.name} MIG changes") as ends:
            async for _ in ends:
                self._rescan.set()

    async def _rescan_on_label(self) -> None:
        with self._bus.watch(ClusterNode, client=f"{self.name} label") as nodes:
            async for _ in nodes:
                if self._read_expected() != self._expected:
                    self._rescan.set()

    def _read_expected(self) -> Expectation:
        node = self._bus.read(ClusterNode)
        labels = node.labels if node is not None else None
        return decide_expectation(self._live.now.gpus.expected, labels, self._remembered_label)

    async def _rescan_on_driver_return(self) -> None:
        with self._bus.watch(DriverState, client=self.name) as states:
            async for envelope in states:
                # What it said before the hardware was read is no return: at a start the worker would be kept from the
                # first sample, which pods wait for, by a second look at all that it has just told.
                if envelope.value.ready and envelope.seq > self._read_after:
                    self._rescan.set()
