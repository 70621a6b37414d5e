"""Changes GPUs: hides what goes, waits for those who have it, makes the calls, sees what came of it.

Owns what happens between a judgement and the calls, and how long each of it may take.
Refuses to choose the layout and to judge it: the component has done so.
"""

from collections.abc import Callable, Collection, Sequence
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass
from typing import Final

from msgspec.structs import replace

from nodeagent.components.mig.around import Around
from nodeagent.components.mig.carry import Carrier, End
from nodeagent.components.mig.clear import Clearer
from nodeagent.components.mig.clients import Clients
from nodeagent.components.mig.judge import list_others
from nodeagent.components.mig.session import SessionDesk
from nodeagent.components.mig.users import Users
from nodeagent.components.mig.watch import is_told
from nodeagent.components.mig.wish import Wish
from nodeagent.model.errors import ControlRefused, NodeagentError
from nodeagent.model.gpu import Gpu
from nodeagent.model.ids import DeviceUuid, GpuUuid
from nodeagent.model.journal import Change
from nodeagent.model.mig import IN_LINE, GpuChange, Write
from nodeagent.model.offering import Offering
from nodeagent.model.plugin import PluginState
from nodeagent.model.ports import ChangeKeeper
from nodeagent.rules.mig.affected import InTheWay, list_affected
from nodeagent.rules.mig.change import OWNER, ChangeUnreadable, Intent, Outcome, Progress, begin_step, read_progress
from nodeagent.rules.mig.partitions import is_shown, read_partitions
from nodeagent.rules.mig.steps import Goal, plan_writes
from nodeagent.rules.mig.wanted import Wanted

SEEN_SECONDS: Final = 20.0
"""How long it may take until what was made is seen."""
OUTDONE: Final = "outdone"
"""How a change ends that could not be settled when it was over, once another one of the same GPU begins."""
UNSEEN: Final = "it was cut, and is not seen so: see `nodeagent gpu list`"
TOLD_SECONDS: Final = 2.0
"""How long the kubelet is given to hear that devices are gone, before those who have them are looked for."""
BUSY: Final = "mig-change-waits"
HALF: Final = "mig-half-way"


class WishChanged(NodeagentError):
    """Something else is asked for by now, or somebody else has the GPU."""


@dataclass(slots=True)
class Due:
    """A GPU that is to change, and those for whom it waits."""

    gpu: Gpu
    wanted: Wanted
    busy: frozenset[int]
    affected: tuple[DeviceUuid, ...]
    """The devices that go."""
    shown: GpuChange
    waits_since: float | None = None
    found: tuple[InTheWay, ...] = ()
    dealt_at: float = 0.0
    """When they were last asked to go, or told of."""
    again_seconds: float | None = None
    """After how long that is done again where they are the same ones still."""


class Changer:
    """Changes GPUs; one change at a time has the turn."""

    def __init__(
        self,
        around: Around,
        keeper: ChangeKeeper,
        sessions: SessionDesk,
        users: Users,
        turn: AbstractAsyncContextManager[None],
        clearer: Clearer,
        clients: Clients,
        list_held: Callable[[], Collection[GpuUuid]],
        now: Callable[[], float],
    ) -> None:
        """`turn` is had by one change at a time, whoever makes it; `list_held` are GPUs that are cut for somebody."""
        self._clients, self._list_held = clients, list_held
        self._around, self._keeper, self._sessions = around, keeper, sessions
        self._users, self._turn, self._clearer, self._now = users, turn, clearer, now

    def line_up(self, gpu: Gpu, wanted: Wanted) -> Due:
        """Hide what goes of a GPU from now on, until `leave`: nobody new is given any of it."""
        busy = self._users.list_busy(gpu)
        affected = list_affected(gpu, plan_writes(Goal(wanted=wanted), read_partitions(gpu), busy=busy))
        keeps = tuple(device.uuid for device in gpu.mig_devices if device.uuid not in affected)
        shown = GpuChange(gpu=gpu.uuid, index=gpu.index, wanted=wanted.describe(), doing=IN_LINE, keeps=keeps)
        self._around.show(shown)
        return Due(gpu=gpu, wanted=wanted, busy=busy, affected=affected, shown=shown)

    def leave(self, due: Due) -> None:
        """The change of this GPU has ended, with success or without."""
        self._around.clear_condition(BUSY, due.gpu.uuid)
        self._around.show(due.shown, is_over=True)

    async def wait_told(self, dues: Sequence[Due]) -> None:
        """The kubelet knows that what goes is not to be had; without a device plugin nobody has to."""
        affected = [device for due in dues for device in due.affected]

        def knows() -> bool:
            state = self._around.read(PluginState)
            return state is None or is_told(state, affected)

        await self._around.wait_until(knows, TOLD_SECONDS)

    async def clear(self, due: Due, wish: Wish) -> bool:
        """Whether nobody has or uses what goes; who does is dealt with as `mig.when_busy` says.

        Raises:
            ControlRefused: somebody does, and the change is not to wait, or has waited for too long.
            WishChanged: it must be judged anew.
        """
        # Before anybody is asked to go, and after: that takes its time.
        self._require_wished(due.gpu, wish)
        found = await self._users.find_in_the_way(due.gpu, due.affected)
        self._require_wished(due.gpu, wish)
        if not found:
            return True
        now = self._now()
        due.waits_since = now if due.waits_since is None else due.waits_since
        if found == due.found and 0.0 <= now - due.dealt_at < (due.again_seconds or 0.0):
            return False
        clearing = await self._clearer.clear(due.gpu, found, now - due.waits_since)
        self._require_wished(due.gpu, wish)
        due.found, due.dealt_at, due.again_seconds = found, now, clearing.again_seconds
        self._around.set_condition(BUSY, due.gpu.uuid, f"GPU {due.gpu.index}: {clearing.detail}")
        self._around.show(replace(due.shown, doing=clearing.doing))
        return False

    async def rest(self, dues: Sequence[Due]) -> None:
        """All of them wait for somebody: keep nobody else waiting, until there is news or it is time to ask again."""
        await self._sessions.close()
        await self._clients.give_back()
        again = [due.again_seconds for due in dues if due.again_seconds is not None]
        await self._around.wait_news(min(again, default=None))

    async def change(self, due: Due, wish: Wish) -> End:
        """Make the calls on a GPU that nobody has or uses.

        Raises:
            WishChanged: it must be judged anew.
            NodeagentError: nothing was changed.
        """
        gpu = due.gpu
        self._around.clear_condition(BUSY, gpu.uuid)
        await self._clients.pause(lambda doing: self._around.show(replace(due.shown, doing=doing)))
        async with self._turn:
            self._require_wished(gpu, wish)
            before = await (await self._sessions.get()).read(gpu)
            await self._settle_outdone(gpu)
            intent = Intent(layout=wish.layout, wanted=due.wanted, before=before)
            number = await self._keeper.begin_change(OWNER, gpu.uuid, begin_step(intent, self._now()))
            return await self._carry(gpu, number, Progress(intent=intent), due.shown, due.busy)

    async def finish(self, change: Change) -> str:
        """Go on with what another life of the agent has begun, or take it back; says why not where it cannot be.

        A GPU that is gone keeps its change.
        """
        known = self._keeper.changes(OWNER)
        if known is not None and change.number not in {one.number for one in known}:
            return ""
        try:
            progress = read_progress(change)
            gpu = self._around.find_gpu(change.gpu)
        except (ChangeUnreadable, ControlRefused) as error:
            self._around.set_condition(HALF, change.gpu, str(error))
            return str(error)
        wanted = progress.intent.wanted.describe()
        shown = GpuChange(gpu=gpu.uuid, index=gpu.index, wanted=wanted, doing="goes on after a restart")
        self._around.show(shown)
        try:
            async with self._turn:
                await self._carry(gpu, change.number, progress, shown)
        except NodeagentError as error:
            self._around.set_condition(HALF, gpu.uuid, str(error))
            return str(error)
        finally:
            await self._sessions.close()
            self._around.show(shown, is_over=True)
        return ""

    def _require_wished(self, gpu: Gpu, wish: Wish) -> None:
        """It may be long since it was judged: other GPUs came before it, and each of them was waited for."""
        others = list_others(self._around.read(Offering), self._list_held())
        if gpu.uuid in others or not self._around.is_wished(wish):
            raise WishChanged(wish.layout)

    async def _settle_outdone(self, gpu: Gpu) -> None:
        """Else a restart would go on with it, over the heads of those who have what this change makes."""
        for one in self._keeper.changes(OWNER) or ():
            if one.gpu == gpu.uuid:
                await self._keeper.settle_change(one.number, OUTDONE)

    async def _carry(
        self, gpu: Gpu, number: int, progress: Progress, shown: GpuChange, busy: frozenset[int] = frozenset()
    ) -> End:
        """Carry a change to its end, until what came of it is seen: before, nobody may be given any of it."""
        carrier = Carrier(self._keeper, await self._sessions.get(), self._teller(shown), self._now)
        end = await carrier.carry(gpu, number, progress, busy)
        await self._keeper.settle_change(number, end.outcome)
        self._around.tell_end(gpu, end, layout=progress.intent.layout)
        intent = progress.intent
        goals = {Outcome.DONE: Goal(wanted=intent.wanted), Outcome.UNDONE: Goal(before=intent.before)}
        goal = goals.get(end.outcome)
        if goal is None:
            await self._wait_shown(gpu)
            return end
        is_seen = await self._around.wait_until(
            lambda: goal.is_reached(read_partitions(self._around.find_gpu(gpu.uuid))), SEEN_SECONDS
        )
        return end if is_seen or end.detail else replace(end, detail=UNSEEN)

    async def _wait_shown(self, gpu: Gpu) -> None:
        """A GPU that is not where it was to be is seen as it is, where the driver still says how that is."""
        try:
            partitions = await (await self._sessions.get()).read(gpu)
        except NodeagentError:
            return  # `tell_end` has had it looked at, and who looks tells what is wrong with it
        await self._around.wait_until(lambda: is_shown(self._around.find_gpu(gpu.uuid), partitions), TOLD_SECONDS)

    def _teller(self, change: GpuChange) -> Callable[[Write], None]:
        done = 0

        def tell(write: Write) -> None:
            nonlocal done
            self._around.show(replace(change, doing=write.describe(), done=done))
            done += 1

        return tell
