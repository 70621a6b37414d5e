"""Cuts GPUs as a label, a person or the configuration asks, unused GPUs first, and reports progress.

Owns the published `MigState`, the request stored over restarts, and the GPUs waited for.
Refuses to touch a GPU that is right, to begin a layout not feasible on all its GPUs, and to take devices from
their holders.
"""

from collections.abc import Awaitable, Callable, Mapping, Sequence
from random import SystemRandom
from typing import TypeVar

import anyio
from anyio.abc import TaskStatus
from msgspec.structs import replace

from nodeagent.components.mig.again import Again
from nodeagent.components.mig.carry import End
from nodeagent.components.mig.changing import HALF, Changer, WishChanged
from nodeagent.components.mig.clear import Clearer
from nodeagent.components.mig.clients import GIVE_BACK_SECONDS, PAUSED, Clients
from nodeagent.components.mig.judge import Judgement, judge
from nodeagent.components.mig.maker import Maker
from nodeagent.components.mig.relay import ApplyingRelay
from nodeagent.components.mig.resume import Resumer
from nodeagent.components.mig.row import Row
from nodeagent.components.mig.session import SessionDesk
from nodeagent.components.mig.settled import Settled
from nodeagent.components.mig.users import Users
from nodeagent.components.mig.wish import (
    Remembered,
    Wish,
    WishUnreadable,
    decide_wish,
    decode_remembered,
    encode_remembered,
    find_layout,
    note_boot,
    note_label,
    render_layouts,
)
from nodeagent.config.live import LiveSettings
from nodeagent.core.channels.bus import Bus
from nodeagent.core.channels.mailbox import Waker
from nodeagent.core.clock import Clock
from nodeagent.core.conditions import Conditions
from nodeagent.core.life.backoff import BackoffSettings, decide_delay
from nodeagent.core.life.orders import OrderHandlers
from nodeagent.core.log.lines import get_logger
from nodeagent.edge.host.files.sealed_store import SealedStore
from nodeagent.model.allocation import AllocationTable
from nodeagent.model.claims import ClaimBook
from nodeagent.model.cluster import MIG_CONFIG_LABEL, ClusterWishes
from nodeagent.model.driver import DriverState
from nodeagent.model.errors import ControlRefused, NodeagentError
from nodeagent.model.events import ConfigurationReloaded, GpuAppeared, GpuSeenStale, MigChangeEnded, WishRefused
from nodeagent.model.gpu import Gpu, Inventory
from nodeagent.model.ids import GpuUuid
from nodeagent.model.journal import Change, PartTable
from nodeagent.model.mig import GpuChange, MigState
from nodeagent.model.offering import Offering
from nodeagent.model.orders import APPLY_LAYOUT, LayoutCommand
from nodeagent.model.plugin import PluginState
from nodeagent.model.ports import ChangeKeeper, ClientPausing, GpuPartitioning, PodEviction, ProcessPlaces
from nodeagent.model.telemetry import NodeSample
from nodeagent.rules.mig.change import OWNER, Outcome
from nodeagent.rules.mig.layouts import Layout, LayoutsRead

V = TypeVar("V")

JOURNAL_RETRY_SECONDS = 1.0
LABEL_SECONDS = 5.0  # how long the node's label is waited for before the stored request counts
FAILED, REBOOT, DRIFTED, INVALID = "mig-change-failed", "mig-reboot-needed", "mig-drifted", "mig-layouts-invalid"
AGAIN = BackoffSettings(first_seconds=10.0, limit_seconds=300.0)  # after a GPU has come back
KNOWN_SECONDS = 30.0  # how long GPUs and journal may take before clients paused by an earlier process are unpaused
WATCHED = (Inventory, DriverState, ClusterWishes, AllocationTable, PartTable, ClaimBook, NodeSample, PluginState)


class Mig:
    """The component."""

    name = "mig"

    def __init__(
        self,
        bus: Bus,
        conditions: Conditions,
        clock: Clock,
        live: LiveSettings,
        partitioning: GpuPartitioning,
        keeper: ChangeKeeper,
        *,
        store: SealedStore,
        relay: ApplyingRelay,
        orders: OrderHandlers,
        read_file: Callable[[], Awaitable[LayoutsRead]],
        places: ProcessPlaces | None = None,
        eviction: PodEviction | None = None,
        pausing: ClientPausing | None = None,
        has_cluster: bool = False,
    ) -> None:
        """Wire the component; `places` finds the pods of processes, `has_cluster`: a label may be read some day."""
        self._bus, self._conditions, self._clock, self._live = bus, conditions, clock, live
        self._keeper, self._store, self._relay, self._orders = keeper, store, relay, orders
        self._sessions, self._read_file, self._has_cluster = SessionDesk(partitioning), read_file, has_cluster
        users, turn = Users(self.read, places), anyio.Lock()
        clearer = Clearer(lambda: live.now.mig, eviction)
        self._maker = Maker(self, keeper, SessionDesk(partitioning), users, turn, clock.wall)
        held = self._maker.list_gpus
        self._clients = Clients(
            pausing, lambda: live.now.mig.pause_clients, self._remember_paused, self.wait_news, clock.monotonic
        )
        self._changer = Changer(self, keeper, self._sessions, users, turn, clearer, self._clients, held, clock.wall)
        self._remembered, self._row = Remembered(), Row(self, self._changer)
        self._boot, self._asked, self._settled = "", 0, Settled()
        self._resumer = Resumer(self, self._changer, self._maker.finish, self._tell_resumed)
        self._again = Again(clock.monotonic, lambda tries: decide_delay(AGAIN, tries, SystemRandom()))
        self._changes: dict[GpuUuid, GpuChange] = {}
        self._waker, self._log = Waker(), get_logger(component=self.name)

    async def run(self, *, task_status: TaskStatus[None]) -> None:
        """Finish changes begun before, then follow the request in force, until cancelled."""
        await self._recall()
        with self._orders.carrying_out(APPLY_LAYOUT, self.apply_layout):
            async with anyio.create_task_group() as tasks:
                tasks.start_soon(self._waker.follow, self._bus.watch_all(*WATCHED, client=self.name), name="mig states")
                tasks.start_soon(self._watch_facts, name="mig facts")
                task_status.started()
                await self._resumer.finish(await self._wait_known())
                with self._relay.make_with(self._maker):
                    await self._wait_label()
                    while True:
                        await self._give_back()
                        if not await self._go_round():
                            self._row.end()
                        await self.wait_news(GIVE_BACK_SECONDS if self._clients.owed else self._again.rest_seconds())

    async def apply_layout(self, command: LayoutCommand) -> str:
        """Apply a MIG layout, or the layout before for an empty name: after the answer, and kept over restarts."""
        wanted, who = command.layout or self._decide().layout, command.who
        inventory = self.read(Inventory)
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
        self._publish(MigState(layout=wanted, origin=who, standing="pending"))
        self._log.info("layout_asked_for", layout=wanted, who=who, differing=len(judgement.differing))
        self._waker.wake()
        changing = f"is asked for: {len(judgement.differing)} of {len(inventory.gpus)} GPUs change"
        return f"{wanted} {changing if judgement.differing else 'is in place'}"

    async def _watch_facts(self) -> None:
        with self._bus.listen(ConfigurationReloaded, GpuAppeared, client=self.name) as facts:
            async for fact in facts:
                self._again.note(fact.value)
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
        return self._keeper.changes(OWNER) if self._bus.latest(Inventory) is not None else None

    async def _give_back_unknown(self) -> None:
        """Unpause DaemonSets even where the driver never comes back."""
        await anyio.sleep(KNOWN_SECONDS)
        while self._clients.owed:
            await self._give_back()
            await anyio.sleep(GIVE_BACK_SECONDS)

    async def _wait_label(self) -> None:
        with anyio.move_on_after(LABEL_SECONDS):
            while self._has_cluster and self._bus.latest(ClusterWishes) is None:
                await self._waker.wait()

    async def _recall(self) -> None:
        stored = await self._store.read()
        self._boot = stored.boot_id
        if stored.body is None:
            return
        try:
            self._remembered = decode_remembered(stored.body)
            self._clients.owed = self._remembered.paused
        except WishUnreadable as error:
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

    def _decide(self) -> Wish:
        return decide_wish(self._note_label(), self._live.now.mig.layout, self._asked)

    def _note_label(self) -> Remembered:
        wishes = self.read(ClusterWishes)
        return note_label(self._remembered, wishes.mig_config if wishes is not None else None)

    async def _go_round(self) -> bool:
        """Judge the request and the GPUs, and change GPUs that differ; returns whether any differed."""
        await self._resumer.finish_come()
        before, self._remembered = self._remembered, self._note_label()
        if self._remembered != before:
            await self._remember()
        wish = self._decide()
        if not wish.layout:
            self._settled.forget()
            self._again.forget()
            self._conditions.replace(FAILED, {})
            self._publish(MigState())
            return False
        inventory, driver = self.read(Inventory), self.read(DriverState)
        assert inventory is not None
        self._settled.note_look(inventory, has_driver=driver is None or driver.ready)
        if self._again.is_barred(wish):
            return False
        layout, problem = await self._find(wish.layout, inventory)
        judgement = self._judge(layout, inventory) if layout is not None else Judgement(wanted={})
        problems = (problem,) if problem else judgement.problems
        cut = self._settled.list_cut(wish, inventory)
        owed = [uuid for uuid in judgement.differing if uuid not in cut]
        if problems and (owed or not self._settled.is_of(wish)):
            self._fail(wish, "; ".join(problems), None)
        elif owed:
            await self._apply(wish, judgement, owed)
            return True
        else:
            if self._remembered.boots:
                self._remembered = replace(self._remembered, boots={})
                await self._remember()
            self._note_in_place(wish, inventory, judgement)
        return False

    async def _find(self, name: str, inventory: Inventory) -> tuple[Layout | None, str]:
        of_file = await self._read_file()
        configured, problems = render_layouts(self._live.now.mig.layouts)
        told = (*problems, *map(str, of_file.problems))
        self._conditions.replace(INVALID, {"": "; ".join(told)} if told else {})
        return find_layout(name, configured, of_file.layouts, inventory.gpus)

    def _note_in_place(self, wish: Wish, inventory: Inventory, judgement: Judgement) -> None:
        self._conditions.replace(DRIFTED, judgement.tell_drift(wish.layout, inventory.gpus))
        self._conditions.replace(FAILED, {})
        for gpu in judgement.wanted.keys() - set(judgement.differing):
            self._conditions.clear(HALF, key=gpu)
            self._conditions.clear(REBOOT, key=gpu)
        self._settled.note_in_place(wish, inventory)
        self._again.forget()
        left = "; ".join(judgement.left)
        self._publish(MigState(layout=wish.layout, origin=wish.origin, standing="success", detail=left))

    async def _await_boot(self, wish: Wish, reasons: Mapping[GpuUuid, str]) -> None:
        """Report a needed boot; fail if the node was booted for the same GPU already, as another boot helps no more."""
        if vain := [reasons[uuid] for uuid in reasons if self._remembered.boots.get(uuid, self._boot) != self._boot]:
            self._fail(wish, f"{vain[0]}, nor did a boot of the node")
            return
        self._remembered = note_boot(self._remembered, reasons, self._boot)
        await self._remember()
        self._again.note_failed(wish, reason := "; ".join(reasons.values()), ())
        self._publish(MigState(layout=wish.layout, origin=wish.origin, standing="rebooting", detail=reason))
        self._log.warning("mig_layout_waits_for_boot", layout=wish.layout, reason=reason)

    def _fail(self, wish: Wish, reason: str, gpus: tuple[GpuUuid, ...] | None = ()) -> None:
        """Report a failure; `gpus` are the GPUs at fault, `None` for a refusal before any change was begun."""
        if not self._again.note_failed(wish, reason, gpus):
            return
        self._conditions.replace(FAILED, {"": f"{wish.layout} ({wish.origin}): {reason}"})
        self._publish(MigState(layout=wish.layout, origin=wish.origin, standing="failed", detail=reason))
        self._log.error("mig_layout_failed", layout=wish.layout, reason=reason)
        if gpus is None:
            self._bus.publish_fact(
                WishRefused(label=MIG_CONFIG_LABEL, value=wish.layout, reason=reason), source=self.name
            )

    async def _apply(self, wish: Wish, judgement: Judgement, owed: Sequence[GpuUuid]) -> None:
        self._conditions.replace(FAILED, {})
        self._publish(MigState(layout=wish.layout, origin=wish.origin, standing="pending"))
        self._log.info("mig_layout_begun", layout=wish.layout, origin=wish.origin, gpus=list(owed))
        row, waiting = self._row.begin(wish, {uuid: judgement.wanted[uuid] for uuid in owed}), {}
        try:
            async for gpu, end in row:
                if end.outcome is Outcome.REBOOT:
                    # The other GPUs need the same boot: it is to find the MIG mode of all GPUs set.
                    waiting[gpu.uuid] = f"GPU {gpu.index}: {end.detail}"
                elif end.outcome is not Outcome.DONE or end.detail:
                    self._fail(wish, f"GPU {gpu.index}: {end.detail}", (gpu.uuid,))
                    return
            if waiting:
                await self._await_boot(wish, waiting)
        except WishChanged:
            row.keep()
        except NodeagentError as error:
            self._fail(wish, str(error), (row.at,))
            return
        finally:
            row.close()
            await self._sessions.close()
            await self._give_back()
        self._waker.wake()

    def _judge(self, layout: Layout, inventory: Inventory) -> Judgement:
        return judge(layout, inventory.gpus, self.read(Offering), self._maker.list_gpus())

    def _tell_resumed(self, change: Change) -> None:
        self._log.info("mig_change_resumed", change=change.number, gpu=change.gpu, steps=len(change.steps))

    def _publish(self, state: MigState) -> None:
        self._bus.publish_state(replace(state, changes=tuple(self._changes.values())), source=self.name)

    # The interface for the helpers: `around.Around`.

    def read(self, state: type[V]) -> V | None:
        """The newest value of a state, once published."""
        return envelope.value if (envelope := self._bus.latest(state)) is not None else None

    def find_gpu(self, uuid: GpuUuid) -> Gpu:
        """The GPU as seen now."""
        inventory = self.read(Inventory)
        if inventory is None or (gpu := inventory.find_gpu(uuid)) is None:
            raise ControlRefused(f"{uuid} is not on this node any more")
        return gpu

    def show(self, change: GpuChange, *, is_over: bool = False) -> None:
        """Publish the progress of a GPU's change; once over, the GPU's devices are offered as they are."""
        self._changes[change.gpu] = change
        if is_over:
            del self._changes[change.gpu]
        self._publish(self.read(MigState) or MigState())

    def tell_end(self, gpu: Gpu, end: End, *, layout: str = "", device: str = "") -> None:
        """Publish the end of a change for a layout or of a single device, and have the GPU polled anew."""
        fact = MigChangeEnded(gpu=gpu.uuid, layout=layout, outcome=end.outcome, detail=end.detail, device=device)
        self._bus.publish_fact(fact, source=self.name)
        self._log.info(
            "mig_change_ended", gpu=gpu.uuid, what=layout or device, outcome=str(end.outcome), detail=end.detail
        )
        for code, outcome in ((HALF, Outcome.HALF), (REBOOT, Outcome.REBOOT)):
            if end.outcome is outcome:
                self.set_condition(code, gpu.uuid, f"GPU {gpu.index}: {end.detail}")
            else:
                self.clear_condition(code, gpu.uuid)

    def tell_stale(self, gpu: Gpu) -> None:
        """Have a GPU polled anew after another program's cut."""
        self._bus.publish_fact(GpuSeenStale(gpu=gpu.uuid), source=self.name)

    def set_condition(self, code: str, gpu: GpuUuid, detail: str) -> None:
        """Set a condition of a GPU."""
        self._conditions.set(code, key=gpu, detail=detail)

    def clear_condition(self, code: str, gpu: GpuUuid) -> None:
        """Clear a condition of a GPU."""
        self._conditions.clear(code, key=gpu)

    async def wait_until(self, is_so: Callable[[], bool], seconds: float) -> bool:
        """Whether the condition comes true in time."""
        with self._bus.watch_all(*WATCHED, client=f"{self.name} waiting") as states, anyio.move_on_after(seconds):
            while not is_so():
                await anext(states)
        return is_so()

    async def wait_news(self, seconds: float | None = None) -> None:
        """Return when a state by which layouts are judged has changed, or after so many seconds."""
        with anyio.move_on_after(seconds):
            await self._waker.wait()

    def is_wished(self, wish: Wish) -> bool:
        """Whether the request is still in force."""
        return self._decide() == wish
