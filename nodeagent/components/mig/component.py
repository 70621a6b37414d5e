"""Cuts GPUs as a label, a person or the configuration asks, unused GPUs first, and reports progress.

Owns the published `MigState`, the request stored over restarts, and the GPUs waited for.
Refuses to touch a GPU that is right, to begin a layout not feasible on all its GPUs, and to take devices from
their holders.
"""

from collections.abc import Awaitable, Callable, Mapping, Sequence
from random import SystemRandom
from typing import NamedTuple

import anyio
from anyio.abc import TaskStatus
from msgspec.structs import replace

from nodeagent.components.mig.apply import Changer, Occupants, RequestSuperseded
from nodeagent.components.mig.carry import PartitionSessions
from nodeagent.components.mig.clients import GIVE_BACK_SECONDS, PAUSED, Clients
from nodeagent.components.mig.judge import Judgement, judge
from nodeagent.components.mig.partition_writer import PartitionWriter
from nodeagent.components.mig.report_task import HALF, REBOOT, WATCHED, MigReporter
from nodeagent.components.mig.request import (
    Drift,
    LayoutRequest,
    LayoutRequestUnreadable,
    Remembered,
    Retry,
    decide_request,
    decode_remembered,
    encode_remembered,
    find_layout,
    note_boot,
    note_label,
    render_layouts,
)
from nodeagent.components.mig.row import Resumer, Row
from nodeagent.components.mig.users import Clearer, Users
from nodeagent.config.live import LiveSettings
from nodeagent.core.channels.bus import Bus
from nodeagent.core.clock import Clock
from nodeagent.core.conditions import Conditions
from nodeagent.core.life.backoff import BackoffSettings, decide_delay
from nodeagent.core.life.handle import Handle
from nodeagent.core.life.orders import OrderHandlers
from nodeagent.core.log.lines import get_logger
from nodeagent.edge.host.files.sealed_store import SealedStore
from nodeagent.model.cluster import MIG_CONFIG_LABEL, NodeRequests
from nodeagent.model.driver import DriverState
from nodeagent.model.errors import ControlRefused, NodeagentError
from nodeagent.model.events import ConfigurationReloaded, GpuAppeared, NodeRequestRefused
from nodeagent.model.gpu import Inventory
from nodeagent.model.ids import GpuUuid
from nodeagent.model.journal import Change
from nodeagent.model.mig import MigState
from nodeagent.model.offering import Offering
from nodeagent.model.orders import APPLY_LAYOUT, LayoutCommand
from nodeagent.model.ports import (
    ChangeJournal,
    ClientPausing,
    GpuAccess,
    PartitionMaking,
    PodEviction,
)
from nodeagent.rules.mig.change import OWNER, Outcome
from nodeagent.rules.mig.layouts import Layout, LayoutsRead

JOURNAL_RETRY_SECONDS = 1.0
LABEL_SECONDS = 5.0  # how long the node's label is waited for before the stored request counts
FAILED, DRIFTED, INVALID = "mig-change-failed", "mig-drifted", "mig-layouts-invalid"
AGAIN = BackoffSettings(first_seconds=10.0, limit_seconds=300.0)  # after a GPU has come back
KNOWN_SECONDS = 30.0  # how long GPUs and journal may take before clients paused by an earlier process are unpaused


class MigFiles(NamedTuple):
    """What outlives the process: the journal, the request in force, and the layouts of the settings' file."""

    journal: ChangeJournal
    store: SealedStore
    read_layouts: Callable[[], Awaitable[LayoutsRead]]


class MigHandles(NamedTuple):
    """By which others reach the component: people by orders, claims by the handle."""

    orders: OrderHandlers
    partitions: Handle[PartitionMaking]


class ClusterAccess(NamedTuple):
    """The API server as far as MIG needs it; empty without a server."""

    eviction: PodEviction | None = None
    pausing: ClientPausing | None = None
    has_labels: bool = False
    """Whether the label of the node may be read some day."""


class Mig:
    """The component."""

    name = "mig"

    def __init__(
        self,
        bus: Bus,
        conditions: Conditions,
        clock: Clock,
        live: LiveSettings,
        gpus: GpuAccess,
        files: MigFiles,
        handles: MigHandles,
        cluster: ClusterAccess,
    ) -> None:
        self._bus, self._conditions, self._clock, self._live = bus, conditions, clock, live
        self._journal, self._store, self._read_file = files
        self._handles, self._has_cluster = handles, cluster.has_labels
        self._reporter = reporter = MigReporter(bus, conditions, lambda request: self._decide() == request)
        self._sessions = PartitionSessions(gpus.partitioning)
        users, turn = Users(reporter.read, gpus.places), anyio.Lock()
        self._partition_writer = PartitionWriter(
            reporter, self._journal, PartitionSessions(gpus.partitioning), users, turn, clock.wall
        )
        self._clients = Clients(
            cluster.pausing,
            lambda: live.now.mig.pause_clients,
            self._remember_paused,
            reporter.wait_news,
            clock.monotonic,
        )
        occupants = Occupants(users, Clearer(lambda: live.now.mig, cluster.eviction), self._clients)
        self._changer = Changer(
            reporter, self._journal, self._sessions, occupants, turn, self._partition_writer.list_gpus, clock.wall
        )
        self._remembered, self._row = Remembered(), Row(reporter, self._changer)
        self._boot, self._asked = "", 0
        self._resumer = Resumer(reporter, self._changer, self._partition_writer.finish, self._publish_resumed)
        self._drift = Drift()
        self._retry = Retry(clock.monotonic, lambda tries: decide_delay(AGAIN, tries, SystemRandom()))
        self._waker, self._log = reporter.waker, get_logger(component=self.name)

    async def run(self, *, task_status: TaskStatus[None]) -> None:
        """Finish changes begun before, then follow the request in force, until cancelled."""
        await self._recall()
        with self._handles.orders.carrying_out(APPLY_LAYOUT, self.apply_layout):
            async with anyio.create_task_group() as tasks:
                tasks.start_soon(self._waker.follow, self._bus.watch_all(*WATCHED, client=self.name), name="mig states")
                tasks.start_soon(self._watch_facts, name="mig facts")
                task_status.started()
                await self._resumer.finish(await self._wait_known())
                with self._handles.partitions.filled(self._partition_writer):
                    await self._wait_label()
                    while True:
                        await self._give_back()
                        if not await self._go_round():
                            self._row.end()
                        await self._reporter.wait_news(
                            GIVE_BACK_SECONDS if self._clients.owed else self._retry.rest_seconds()
                        )

    async def apply_layout(self, command: LayoutCommand) -> str:
        """Apply a MIG layout, or the layout before for an empty name: after the answer, and kept over restarts."""
        wanted, who = command.layout or self._decide().layout, command.who
        inventory = self._reporter.read(Inventory)
        if not wanted or inventory is None:
            raise ControlRefused("no layout is asked for: name one, see `nodeagent mig show`")
        layout, problem = await self._find(wanted, inventory)
        if layout is None:
            raise ControlRefused(problem)
        judgement = self._judge(layout, inventory)
        if judgement.problems:
            raise ControlRefused(f"nothing is changed: {'; '.join(judgement.problems)}")
        # The label's present value is older than this request, and must not outrank it at the next round.
        self._remembered = replace(self._note_label(), layout=wanted, origin=who, boots={})
        await self._remember()
        self._asked += 1
        # A waiting command must not take the standing of the request before for its own.
        self._reporter.publish(MigState(layout=wanted, origin=who, standing="pending"))
        self._log.info("layout_asked_for", layout=wanted, who=who, differing=len(judgement.differing))
        self._waker.wake()
        changing = f"is asked for: {len(judgement.differing)} of {len(inventory.gpus)} GPUs change"
        return f"{wanted} {changing if judgement.differing else 'is in place'}"

    async def _watch_facts(self) -> None:
        with self._bus.listen(ConfigurationReloaded, GpuAppeared, client=self.name) as facts:
            async for fact in facts:
                self._retry.note(fact.value)
                if isinstance(fact.value, GpuAppeared):
                    self._resumer.note_come(fact.value.gpu)
                self._waker.wake()

    async def _wait_known(self) -> tuple[Change, ...]:
        """The changes begun by an earlier process, once GPUs and journal are known."""
        changes = self._list_begun()
        if changes is None:
            async with anyio.create_task_group() as tasks:
                tasks.start_soon(self._give_back_unknown, name="mig others paused")
                while (changes := self._list_begun()) is None:
                    with anyio.move_on_after(JOURNAL_RETRY_SECONDS):
                        await self._waker.wait()
                tasks.cancel_scope.cancel()
            assert changes is not None
        return changes

    def _list_begun(self) -> tuple[Change, ...] | None:
        return self._journal.changes(OWNER) if self._bus.read(Inventory) is not None else None

    async def _give_back_unknown(self) -> None:
        """Unpause DaemonSets even where the driver never comes back."""
        await anyio.sleep(KNOWN_SECONDS)
        while self._clients.owed:
            await self._give_back()
            await anyio.sleep(GIVE_BACK_SECONDS)

    async def _wait_label(self) -> None:
        with anyio.move_on_after(LABEL_SECONDS):
            while self._has_cluster and self._bus.read(NodeRequests) is None:
                await self._waker.wait()

    async def _recall(self) -> None:
        stored = await self._store.read()
        self._boot = stored.boot_id
        if stored.body is None:
            return
        try:
            self._remembered = decode_remembered(stored.body)
            self._clients.owed = self._remembered.paused
        except LayoutRequestUnreadable as error:
            self._log.warning("mig_wish_unreadable", reason=await self._store.discard(str(error)))

    async def _remember(self) -> str:
        trouble = await self._store.write(encode_remembered(self._remembered))
        if trouble:
            self._log.error("mig_wish_not_remembered", reason=trouble)
        return trouble

    async def _remember_paused(self, paused: Mapping[str, str]) -> str:
        self._remembered = replace(self._remembered, paused=paused)
        return await self._remember()

    async def _give_back(self) -> None:
        """Unpause all DaemonSets: retried until done, also while the agent is being stopped."""
        with anyio.move_on_after(GIVE_BACK_SECONDS, shield=True):
            trouble = await self._clients.give_back()
            self._conditions.replace(PAUSED, {"": trouble} if trouble else {})

    def _decide(self) -> LayoutRequest:
        return decide_request(self._note_label(), self._live.now.mig.layout, self._asked)

    def _note_label(self) -> Remembered:
        requests = self._reporter.read(NodeRequests)
        return note_label(self._remembered, requests.mig_config if requests is not None else None)

    async def _go_round(self) -> bool:
        """Judge the request and the GPUs, and change GPUs that differ; returns whether any differed."""
        await self._resumer.finish_come()
        before, self._remembered = self._remembered, self._note_label()
        if self._remembered != before:
            await self._remember()
        request = self._decide()
        if not request.layout:
            self._drift.forget()
            self._retry.forget()
            self._conditions.replace(FAILED, {})
            self._reporter.publish(MigState())
            return False
        inventory, driver = self._reporter.read(Inventory), self._reporter.read(DriverState)
        assert inventory is not None
        self._drift.note_inventory_poll(inventory, has_driver=driver is None or driver.ready)
        if self._retry.is_barred(request):
            return False
        layout, problem = await self._find(request.layout, inventory)
        judgement = self._judge(layout, inventory) if layout is not None else Judgement(wanted={})
        problems = (problem,) if problem else judgement.problems
        cut = self._drift.list_cut(request, inventory)
        owed = [uuid for uuid in judgement.differing if uuid not in cut]
        if problems and (owed or not self._drift.is_of(request)):
            self._fail(request, "; ".join(problems), None)
        elif owed:
            await self._apply(request, judgement, owed)
            return True
        else:
            if self._remembered.boots:
                self._remembered = replace(self._remembered, boots={})
                await self._remember()
            self._note_in_place(request, inventory, judgement)
        return False

    async def _find(self, name: str, inventory: Inventory) -> tuple[Layout | None, str]:
        of_file = await self._read_file()
        configured, problems = render_layouts(self._live.now.mig.layouts)
        told = (*problems, *map(str, of_file.problems))
        self._conditions.replace(INVALID, {"": "; ".join(told)} if told else {})
        return find_layout(name, configured, of_file.layouts, inventory.gpus)

    def _note_in_place(self, request: LayoutRequest, inventory: Inventory, judgement: Judgement) -> None:
        self._conditions.replace(DRIFTED, judgement.describe_drift(request.layout, inventory.gpus))
        self._conditions.replace(FAILED, {})
        for gpu in judgement.wanted.keys() - set(judgement.differing):
            self._conditions.clear(HALF, key=gpu)
            self._conditions.clear(REBOOT, key=gpu)
        self._drift.note_in_place(request, inventory)
        self._retry.forget()
        left = "; ".join(judgement.left)
        self._reporter.publish(MigState(layout=request.layout, origin=request.origin, standing="success", detail=left))

    async def _await_boot(self, request: LayoutRequest, reasons: Mapping[GpuUuid, str]) -> None:
        """Report a needed boot; fail if the node was booted for the same GPU already, as another boot helps no more."""
        if vain := [reasons[uuid] for uuid in reasons if self._remembered.boots.get(uuid, self._boot) != self._boot]:
            self._fail(request, f"{vain[0]}, nor did a boot of the node")
            return
        self._remembered = note_boot(self._remembered, reasons, self._boot)
        await self._remember()
        self._retry.note_failed(request, reason := "; ".join(reasons.values()), ())
        self._reporter.publish(
            MigState(layout=request.layout, origin=request.origin, standing="rebooting", detail=reason)
        )
        self._log.warning("mig_layout_waits_for_boot", layout=request.layout, reason=reason)

    def _fail(self, request: LayoutRequest, reason: str, gpus: tuple[GpuUuid, ...] | None = ()) -> None:
        """Report a failure; `gpus` are the GPUs at fault, `None` for a refusal before any change was begun."""
        if not self._retry.note_failed(request, reason, gpus):
            return
        self._conditions.replace(FAILED, {"": f"{request.layout} ({request.origin}): {reason}"})
        self._reporter.publish(MigState(layout=request.layout, origin=request.origin, standing="failed", detail=reason))
        self._log.error("mig_layout_failed", layout=request.layout, reason=reason)
        if gpus is None:
            self._bus.publish_fact(
                NodeRequestRefused(label=MIG_CONFIG_LABEL, value=request.layout, reason=reason), source=self.name
            )

    async def _apply(self, request: LayoutRequest, judgement: Judgement, owed: Sequence[GpuUuid]) -> None:
        self._conditions.replace(FAILED, {})
        self._reporter.publish(MigState(layout=request.layout, origin=request.origin, standing="pending"))
        self._log.info("mig_layout_begun", layout=request.layout, origin=request.origin, gpus=list(owed))
        row, waiting = self._row.begin(request, {uuid: judgement.wanted[uuid] for uuid in owed}), {}
        try:
            async for gpu, end in row:
                if end.outcome is Outcome.REBOOT:
                    # The other GPUs need the same boot: it is to find the MIG mode of all GPUs set.
                    waiting[gpu.uuid] = f"GPU {gpu.index}: {end.detail}"
                elif end.outcome is not Outcome.DONE or end.detail:
                    self._fail(request, f"GPU {gpu.index}: {end.detail}", (gpu.uuid,))
                    return
            if waiting:
                await self._await_boot(request, waiting)
        except RequestSuperseded:
            row.keep()
        except NodeagentError as error:
            self._fail(request, str(error), (row.at,))
            return
        finally:
            row.close()
            await self._sessions.close()
            await self._give_back()
        self._waker.wake()

    def _judge(self, layout: Layout, inventory: Inventory) -> Judgement:
        return judge(layout, inventory.gpus, self._reporter.read(Offering), self._partition_writer.list_gpus())

    def _publish_resumed(self, change: Change) -> None:
        self._log.info("mig_change_resumed", change=change.number, gpu=change.gpu, steps=len(change.steps))
