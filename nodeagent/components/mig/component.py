"""Cuts GPUs as a label, a person or the configuration asks, one GPU after the other, and tells how that stands.

Owns the published `MigState`, the wish that is remembered over restarts, and who is waited for.
Refuses to touch a GPU that is right, to begin what cannot be had on all GPUs that it is asked for, and to take anything
from those who have it.
"""

from collections.abc import Awaitable, Callable

import anyio
from anyio.abc import TaskStatus
from msgspec.structs import replace

from nodeagent.components.mig.carry import Carrier, End
from nodeagent.components.mig.judge import Judgement, judge
from nodeagent.components.mig.relay import ApplyingRelay
from nodeagent.components.mig.watch import find_pids, is_told, list_processes
from nodeagent.components.mig.wish import (
    Remembered,
    Wish,
    WishUnreadable,
    decide_wish,
    decode_remembered,
    encode_remembered,
    find_layout,
    note_label,
    render_layouts,
)
from nodeagent.config.live import LiveSettings
from nodeagent.core.channels.bus import Bus
from nodeagent.core.channels.mailbox import Waker
from nodeagent.core.clock import Clock
from nodeagent.core.conditions import Conditions
from nodeagent.core.log.lines import get_logger
from nodeagent.edge.host.files.sealed_store import SealedStore
from nodeagent.model.allocation import Allocation, AllocationTable
from nodeagent.model.cluster import MIG_CONFIG_LABEL, ClusterWishes
from nodeagent.model.errors import ControlRefused, NodeagentError
from nodeagent.model.events import ConfigurationReloaded, MigChangeEnded, WishRefused
from nodeagent.model.gpu import Gpu, Inventory
from nodeagent.model.ids import DeviceUuid, GpuUuid
from nodeagent.model.journal import Change, PartTable
from nodeagent.model.mig import GpuChange, MigState, Write
from nodeagent.model.plugin import PluginState
from nodeagent.model.ports import ChangeKeeper, GpuPartitioning, ProcessPlaces
from nodeagent.model.telemetry import NodeSample, ProcessSample
from nodeagent.rules.mig.affected import InTheWay, describe_in_the_way, find_in_the_way, list_affected, list_busy
from nodeagent.rules.mig.change import OWNER, ChangeUnreadable, Intent, Outcome, Progress, begin_step, read_progress
from nodeagent.rules.mig.layouts import Layout, LayoutsRead
from nodeagent.rules.mig.partitions import read_partitions
from nodeagent.rules.mig.steps import Goal, plan_writes
from nodeagent.rules.mig.wanted import Wanted

JOURNAL_RETRY_SECONDS = 1.0
LABEL_SECONDS = 5.0
"""How long the node's label is waited for before what was asked for last is taken for it."""
SEEN_SECONDS = 20.0
"""How long it may take until what was made is seen."""
TOLD_SECONDS = 2.0
"""How long the kubelet is given to hear that devices are gone, before those who have them are looked for."""
BUSY, FAILED, HALF, REBOOT = "mig-change-waits", "mig-change-failed", "mig-half-way", "mig-reboot-needed"
DRIFTED, INVALID = "mig-drifted", "mig-layouts-invalid"


class WishChanged(NodeagentError):
    """Something else is asked for by now."""


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
        read_file: Callable[[], Awaitable[LayoutsRead]],
        places: ProcessPlaces | None = None,
        has_cluster: bool = False,
    ) -> None:
        """Wire it up; `places` tells the pods of processes, `has_cluster` whether a label may be read some day."""
        self._bus, self._conditions, self._clock, self._live = bus, conditions, clock, live
        self._partitioning, self._keeper, self._store, self._relay = partitioning, keeper, store, relay
        self._read_file, self._places, self._has_cluster = read_file, places, has_cluster
        self._remembered = Remembered()
        self._asked = 0
        self._settled: Wish | None = None
        self._failed: tuple[Wish, str] | None = None
        self._changes: dict[GpuUuid, GpuChange] = {}
        self._waker = Waker()
        self._log = get_logger(component=self.name)

    async def run(self, *, task_status: TaskStatus[None]) -> None:
        """Finish what was begun, then follow what is asked for, until cancelled."""
        await self._recall()
        with self._relay.lead_to(self):
            async with anyio.create_task_group() as tasks:
                tasks.start_soon(self._watch_states, name="mig states")
                tasks.start_soon(self._watch_settings, name="mig settings")
                task_status.started()
                await self._finish(await self._wait_known())
                await self._wait_label()
                while True:
                    await self._go_round()
                    await self._waker.wait()

    async def apply_layout(self, name: str, who: str) -> str:
        """Have the GPUs cut as this layout says; the port's contract is in `model.ports`."""
        wish = self._decide()
        wanted = name or wish.layout
        inventory = self._bus.latest(Inventory)
        if not wanted or inventory is None:
            raise ControlRefused("no layout is asked for: name one, see `nodeagent mig show`")
        layout, problem = await self._find(wanted)
        if layout is None:
            raise ControlRefused(problem)
        judgement = judge(layout, inventory.value.gpus)
        if judgement.problems:
            raise ControlRefused(f"nothing is changed: {'; '.join(judgement.problems)}")
        self._remembered = replace(self._remembered, layout=wanted, origin=who)
        await self._remember()
        self._asked += 1
        self._log.info("layout_asked_for", layout=wanted, who=who, differing=len(judgement.differing))
        self._waker.wake()
        if not judgement.differing:
            return f"{wanted} is in place"
        return f"{wanted} is asked for: {len(judgement.differing)} of {len(inventory.value.gpus)} GPUs change"

    async def _watch_states(self) -> None:
        watched = (Inventory, ClusterWishes, AllocationTable, PartTable, NodeSample, PluginState)
        with self._bus.watch_all(*watched, client=self.name) as states:
            async for _ in states:
                self._waker.wake()

    async def _watch_settings(self) -> None:
        with self._bus.listen(ConfigurationReloaded, client=self.name) as reloads:
            async for _ in reloads:
                self._failed = None
                self._waker.wake()

    async def _wait_known(self) -> tuple[Change, ...]:
        """The changes that another life of the agent has begun, once GPUs and journal are known."""
        while (changes := self._keeper.changes(OWNER)) is None or self._bus.latest(Inventory) is None:
            with anyio.move_on_after(JOURNAL_RETRY_SECONDS):
                await self._waker.wait()
        return changes

    async def _wait_label(self) -> None:
        with anyio.move_on_after(LABEL_SECONDS):
            while self._has_cluster and self._bus.latest(ClusterWishes) is None:
                await self._waker.wait()

    async def _recall(self) -> None:
        stored = await self._store.read()
        if stored.body is None:
            return
        try:
            self._remembered = decode_remembered(stored.body)
        except WishUnreadable as error:
            self._log.warning("mig_wish_unreadable", reason=await self._store.discard(str(error)))

    async def _remember(self) -> None:
        trouble = await self._store.write(encode_remembered(self._remembered))
        if trouble:
            self._log.error("mig_wish_not_remembered", reason=trouble)

    def _decide(self) -> Wish:
        wishes = self._bus.latest(ClusterWishes)
        label = wishes.value.mig_config if wishes is not None else None
        return decide_wish(note_label(self._remembered, label), self._live.now.mig.layout, self._asked)

    async def _go_round(self) -> None:
        """Look at what is asked for and at the GPUs, and change what differs."""
        wishes = self._bus.latest(ClusterWishes)
        before = self._remembered
        self._remembered = note_label(before, wishes.value.mig_config if wishes is not None else None)
        if self._remembered != before:
            await self._remember()
        wish = self._decide()
        if not wish.layout:
            self._settled = self._failed = None
            self._conditions.replace(FAILED, {})
            self._publish(MigState())
            return
        if self._failed is not None and self._failed[0] == wish:
            return
        layout, problem = await self._find(wish.layout)
        inventory = self._bus.latest(Inventory)
        assert inventory is not None
        judgement = judge(layout, inventory.value.gpus) if layout is not None else Judgement(wanted={})
        problems = (problem,) if problem else judgement.problems
        if problems and wish != self._settled:
            self._fail(wish, "; ".join(problems), is_refused=True)
        elif judgement.differing and wish != self._settled:
            await self._apply(wish, judgement)
        else:
            self._note_in_place(wish, inventory.value, judgement)

    async def _find(self, name: str) -> tuple[Layout | None, str]:
        inventory = self._bus.latest(Inventory)
        gpus = inventory.value.gpus if inventory is not None else ()
        of_file = await self._read_file()
        configured, problems = render_layouts(self._live.now.mig.layouts)
        told = (*problems, *map(str, of_file.problems))
        self._conditions.replace(INVALID, {"": "; ".join(told)} if told else {})
        return find_layout(name, configured, of_file.layouts, gpus)

    def _note_in_place(self, wish: Wish, inventory: Inventory, judgement: Judgement) -> None:
        named = [f"GPU {gpu.index}" for gpu in inventory.gpus if gpu.uuid in judgement.differing]
        self._conditions.replace(DRIFTED, {"": f"{wish.layout}: {', '.join(named)} differs"} if named else {})
        self._conditions.replace(FAILED, {})
        for gpu in judgement.wanted.keys() - set(judgement.differing):
            self._conditions.clear(HALF, key=gpu)
            self._conditions.clear(REBOOT, key=gpu)
        self._settled, self._failed = wish, None
        self._publish(MigState(layout=wish.layout, origin=wish.origin, standing="success"))

    def _fail(self, wish: Wish, reason: str, *, is_refused: bool = False) -> None:
        self._failed = (wish, reason)
        detail = f"{wish.layout} ({wish.origin}): {reason}"
        self._conditions.replace(FAILED, {"": detail})
        self._publish(MigState(layout=wish.layout, origin=wish.origin, standing="failed", detail=reason))
        self._log.error("mig_layout_failed", layout=wish.layout, reason=reason)
        if is_refused:
            refused = WishRefused(label=MIG_CONFIG_LABEL, value=wish.layout, reason=reason)
            self._bus.publish_fact(refused, source=self.name)

    async def _apply(self, wish: Wish, judgement: Judgement) -> None:
        self._conditions.replace(FAILED, {})
        self._publish(MigState(layout=wish.layout, origin=wish.origin, standing="pending"))
        self._log.info("mig_layout_begun", layout=wish.layout, origin=wish.origin, gpus=list(judgement.differing))
        try:
            for uuid in judgement.differing:
                gpu = self._find_gpu(uuid)
                end = await self._change(gpu, judgement.wanted[uuid], wish)
                if end.outcome is not Outcome.DONE:
                    self._fail(wish, f"GPU {gpu.index}: {end.detail}")
                    return
                is_seen = await self._wait_seen(uuid, Goal(wanted=judgement.wanted[uuid]))
                if not is_seen:  # pragma: no cover - tested; Python 3.11 traces no frame that an exception resumes
                    self._fail(wish, f"{uuid} was cut, and is not seen so: see `nodeagent gpu list`")
                    return
        except WishChanged:
            self._waker.wake()
            return
        except NodeagentError as error:
            self._fail(wish, str(error))
            return
        self._waker.wake()

    def _find_gpu(self, uuid: GpuUuid) -> Gpu:
        inventory = self._bus.latest(Inventory)
        gpu = inventory.value.find_gpu(uuid) if inventory is not None else None
        if gpu is None:
            raise ControlRefused(f"{uuid} is not on this node any more")
        return gpu

    async def _change(self, gpu: Gpu, wanted: Wanted, wish: Wish) -> End:
        """Change one GPU: hide what goes, wait for those who have it, make the calls.

        Raises:
            NodeagentError: nothing was changed.
        """
        busy = list_busy(gpu, self._allocations(), self._processes(gpu.uuid))
        writes = plan_writes(Goal(wanted=wanted), read_partitions(gpu), busy=busy)
        affected = list_affected(gpu, writes)
        keeps = tuple(device.uuid for device in gpu.mig_devices if device.uuid not in affected)
        change = GpuChange(gpu=gpu.uuid, index=gpu.index, wanted=wanted.describe(), doing="begins", keeps=keeps)
        try:
            self._show(change)
            await self._wait_told(affected)
            await self._wait_free(gpu, affected, change, wish)
            async with self._partitioning.begin() as session:
                before = await session.read(gpu)
                intent = Intent(layout=wish.layout, wanted=wanted, before=before)
                number = await self._keeper.begin_change(OWNER, gpu.uuid, begin_step(intent, self._clock.wall()))
                carrier = Carrier(self._keeper, session, self._teller(change), self._clock.wall)
                end = await carrier.carry(gpu, number, Progress(intent=intent), busy)
            await self._end(gpu, number, wish.layout, end)
        finally:
            self._conditions.clear(BUSY, key=gpu.uuid)
            self._show(change, is_over=True)
        return end

    async def _finish(self, changes: tuple[Change, ...]) -> None:
        """Go on with what another life of the agent has begun, or take it back; GPUs that are gone keep theirs."""
        for change in changes:
            try:
                progress = read_progress(change)
                gpu = self._find_gpu(change.gpu)
            except (ChangeUnreadable, ControlRefused) as error:
                self._log.warning("mig_change_not_resumed", change=change.number, reason=str(error))
                self._conditions.set(HALF, key=change.gpu, detail=str(error))
                continue
            wanted = progress.intent.wanted.describe()
            shown = GpuChange(gpu=gpu.uuid, index=gpu.index, wanted=wanted, doing="goes on after a restart")
            self._log.info("mig_change_resumed", change=change.number, gpu=gpu.uuid, writes=len(progress.writes))
            self._show(shown)
            try:
                async with self._partitioning.begin() as session:
                    carrier = Carrier(self._keeper, session, self._teller(shown), self._clock.wall)
                    end = await carrier.carry(gpu, change.number, progress)
                await self._end(gpu, change.number, progress.intent.layout, end)
                is_done = end.outcome is Outcome.DONE
                intent = progress.intent
                await self._wait_seen(gpu.uuid, Goal(wanted=intent.wanted, before=None if is_done else intent.before))
            except NodeagentError as error:
                self._conditions.set(HALF, key=gpu.uuid, detail=str(error))
            finally:
                self._show(shown, is_over=True)

    async def _end(self, gpu: Gpu, number: int, layout: str, end: End) -> None:
        """Write down and tell how a change ended."""
        await self._keeper.settle_change(number, end.outcome)
        ended = MigChangeEnded(gpu=gpu.uuid, layout=layout, outcome=end.outcome, detail=end.detail)
        self._bus.publish_fact(ended, source=self.name)
        self._log.info("mig_change_ended", gpu=gpu.uuid, layout=layout, outcome=str(end.outcome), detail=end.detail)
        for code, outcome in ((HALF, Outcome.HALF), (REBOOT, Outcome.REBOOT)):
            if end.outcome is outcome:
                self._conditions.set(code, key=gpu.uuid, detail=f"GPU {gpu.index}: {end.detail}")
            else:
                self._conditions.clear(code, key=gpu.uuid)

    async def _wait_told(self, affected: tuple[DeviceUuid, ...]) -> None:
        """The kubelet knows that these devices are not to be had; without a device plugin nobody has to."""
        with anyio.move_on_after(TOLD_SECONDS):
            while (state := self._bus.latest(PluginState)) is not None and not is_told(state.value, affected):
                await self._waker.wait()

    async def _wait_free(self, gpu: Gpu, affected: tuple[DeviceUuid, ...], change: GpuChange, wish: Wish) -> None:
        """Nobody has or uses what goes.

        Raises:
            ControlRefused: somebody does, and the change is not to wait.
            WishChanged: something else is asked for by now.
        """
        while found := await self._find_in_the_way(gpu, affected):
            names = describe_in_the_way(found)
            if self._live.now.mig.when_busy == "refuse":
                raise ControlRefused(f"GPU {gpu.index} is used by {names}, and mig.when_busy is refuse")
            if self._decide() != wish:
                raise WishChanged(wish.layout)
            self._conditions.set(BUSY, key=gpu.uuid, detail=f"GPU {gpu.index}: {names}")
            self._show(replace(change, doing=f"waits for {names}"))
            await self._waker.wait()

    async def _find_in_the_way(self, gpu: Gpu, affected: tuple[DeviceUuid, ...]) -> tuple[InTheWay, ...]:
        processes = self._processes(gpu.uuid)
        pids = find_pids(processes)
        places = await self._places.read_places(pids) if self._places is not None and pids else {}
        pods = {pid: place.pod_uid for pid, place in places.items()}
        parts = self._bus.latest(PartTable)
        table = parts.value if parts is not None else None
        return find_in_the_way(gpu, affected, self._allocations(), processes, pods, table)

    async def _wait_seen(self, uuid: GpuUuid, goal: Goal) -> bool:
        """Whether what was made is in the inventory before long, for nobody is told of it before."""
        with anyio.move_on_after(SEEN_SECONDS):
            while not goal.is_reached(read_partitions(self._find_gpu(uuid))):
                await self._waker.wait()
            return True
        return False

    def _allocations(self) -> tuple[Allocation, ...]:
        table = self._bus.latest(AllocationTable)
        return table.value.allocations if table is not None else ()

    def _processes(self, gpu: GpuUuid) -> tuple[ProcessSample, ...]:
        sample = self._bus.latest(NodeSample)
        return list_processes(sample.value, gpu) if sample is not None else ()

    def _teller(self, change: GpuChange) -> Callable[[Write], None]:
        done = 0

        def tell(write: Write) -> None:
            nonlocal done
            self._show(replace(change, doing=write.describe(), done=done))
            done += 1

        return tell

    def _show(self, change: GpuChange, *, is_over: bool = False) -> None:
        """Tell everybody how far a GPU is; over, its devices are offered as they are."""
        self._changes.pop(change.gpu, None)
        if not is_over:
            self._changes[change.gpu] = change
        latest = self._bus.latest(MigState)
        self._publish(latest.value if latest is not None else MigState())

    def _publish(self, state: MigState) -> None:
        self._bus.publish_state(replace(state, changes=tuple(self._changes.values())), source=self.name)
