"""Changes GPUs: hides devices to be removed, waits for their users, makes the calls, checks the result.

Owns the steps between a judgement and the calls, and the time limit of each step.
Refuses to choose the layout and to judge it: the component has done so.
"""

from collections.abc import Callable, Collection, Sequence
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass
from typing import Final, NamedTuple

from msgspec.structs import replace

from nodeagent.components.mig.carry import Carrier, End, PartitionSessions
from nodeagent.components.mig.clients import Clients
from nodeagent.components.mig.judge import list_others
from nodeagent.components.mig.report_task import HALF, MigReporter
from nodeagent.components.mig.request import LayoutRequest
from nodeagent.components.mig.users import Clearer, Users, is_withdrawn
from nodeagent.model.errors import ControlRefused, NodeagentError
from nodeagent.model.gpu import Gpu
from nodeagent.model.ids import DeviceUuid, GpuUuid
from nodeagent.model.journal import Change
from nodeagent.model.mig import IN_LINE, GpuChange, Write
from nodeagent.model.offering import Offering
from nodeagent.model.plugin import PluginState
from nodeagent.model.ports import ChangeJournal
from nodeagent.rules.mig.affected import InTheWay, list_affected
from nodeagent.rules.mig.change import OWNER, ChangeUnreadable, Intent, Outcome, Progress, begin_step, read_progress
from nodeagent.rules.mig.partitions import is_shown, read_partitions
from nodeagent.rules.mig.steps import Goal, plan_writes
from nodeagent.rules.mig.wanted import Wanted

SEEN_SECONDS: Final = 20.0
"""How long new MIG devices may take to appear in the inventory."""
OUTDONE: Final = "outdone"
"""The outcome of a change that could not be settled in time, once another change of the same GPU begins."""
UNSEEN: Final = "it was cut, and is not seen so: see `nodeagent gpu list`"
TOLD_SECONDS: Final = 2.0
"""How long the kubelet is given to learn of removed devices, before users of these devices are looked for."""
BUSY: Final = "mig-change-waits"


class RequestSuperseded(NodeagentError):
    """Another layout is asked for by now, or the GPU has another owner."""


@dataclass(slots=True)
class Due:
    """A GPU to be changed, and the users for whom the change waits."""

    gpu: Gpu
    wanted: Wanted
    busy: frozenset[int]
    affected: tuple[DeviceUuid, ...]
    """The devices to be removed."""
    shown: GpuChange
    waits_since: float | None = None
    found: tuple[InTheWay, ...] = ()
    dealt_at: float = 0.0
    """When the users were last asked to go, or reported."""
    again_seconds: float | None = None
    """Seconds until the same users are asked or reported again."""


class Occupants(NamedTuple):
    """The users of a GPU, and the means to move pods and clients out of a change's way."""

    users: Users
    clearer: Clearer
    clients: Clients


class Changer:
    """Changes GPUs, never two at a time."""

    def __init__(
        self,
        reporter: MigReporter,
        journal: ChangeJournal,
        sessions: PartitionSessions,
        occupants: Occupants,
        turn: AbstractAsyncContextManager[None],
        list_held: Callable[[], Collection[GpuUuid]],
        now: Callable[[], float],
    ) -> None:
        """`turn` is the lock shared by all changes; `list_held` names GPUs cut for keys of single devices."""
        self._users, self._clearer, self._clients = occupants
        self._reporter, self._journal, self._sessions = reporter, journal, sessions
        self._turn, self._list_held, self._now = turn, list_held, now

    def line_up(self, gpu: Gpu, wanted: Wanted) -> Due:
        """Hide the devices to be removed from now on until `leave`: no new pod is given any of them."""
        busy = self._users.list_busy(gpu)
        affected = list_affected(gpu, plan_writes(Goal(wanted=wanted), read_partitions(gpu), busy=busy))
        keeps = tuple(device.uuid for device in gpu.mig_devices if device.uuid not in affected)
        shown = GpuChange(gpu=gpu.uuid, index=gpu.index, wanted=wanted.describe(), doing=IN_LINE, keeps=keeps)
        self._reporter.show(shown)
        return Due(gpu=gpu, wanted=wanted, busy=busy, affected=affected, shown=shown)

    def leave(self, due: Due) -> None:
        """End the change of this GPU, with success or without."""
        self._reporter.clear_condition(BUSY, due.gpu.uuid)
        self._reporter.show(due.shown, is_over=True)

    async def wait_withdrawn(self, dues: Sequence[Due]) -> None:
        """Wait until no device to be removed is advertised as healthy; without a device plugin there is no wait."""
        affected = [device for due in dues for device in due.affected]

        def knows() -> bool:
            state = self._reporter.read(PluginState)
            return state is None or is_withdrawn(state, affected)

        await self._reporter.wait_until(knows, TOLD_SECONDS)

    async def clear(self, due: Due, request: LayoutRequest) -> bool:
        """Whether the devices to be removed are unused; users are dealt with as `mig.when_busy` says.

        Raises:
            ControlRefused: There are users, and the change is not to wait, or has waited for too long.
            RequestSuperseded: The GPU must be judged anew.
        """
        # Before pods are asked to go, and after: asking takes its time.
        self._require_current(due.gpu, request)
        found = await self._users.find_in_the_way(due.gpu, due.affected)
        self._require_current(due.gpu, request)
        if not found:
            return True
        now = self._now()
        due.waits_since = now if due.waits_since is None else due.waits_since
        if found == due.found and 0.0 <= now - due.dealt_at < (due.again_seconds or 0.0):
            return False
        clearing = await self._clearer.clear(due.gpu, found, now - due.waits_since)
        self._require_current(due.gpu, request)
        due.found, due.dealt_at, due.again_seconds = found, now, clearing.again_seconds
        self._reporter.set_condition(BUSY, due.gpu.uuid, f"GPU {due.gpu.index}: {clearing.detail}")
        self._reporter.show(replace(due.shown, doing=clearing.doing))
        return False

    async def rest(self, dues: Sequence[Due]) -> None:
        """All GPUs wait for users: end the session, unpause clients, and wait for news or the next retry."""
        await self._sessions.close()
        await self._clients.give_back()
        again = [due.again_seconds for due in dues if due.again_seconds is not None]
        await self._reporter.wait_news(min(again, default=None))

    async def change(self, due: Due, request: LayoutRequest) -> End:
        """Make the calls on an unused GPU.

        Raises:
            RequestSuperseded: The GPU must be judged anew.
            NodeagentError: Nothing was changed.
        """
        gpu = due.gpu
        self._reporter.clear_condition(BUSY, gpu.uuid)
        await self._clients.pause(lambda doing: self._reporter.show(replace(due.shown, doing=doing)))
        async with self._turn:
            self._require_current(gpu, request)
            before = await (await self._sessions.get()).read(gpu)
            await self._settle_outdone(gpu)
            intent = Intent(layout=request.layout, wanted=due.wanted, before=before)
            number = await self._journal.begin_change(OWNER, gpu.uuid, begin_step(intent, self._now()))
            return await self._carry(gpu, number, Progress(intent=intent), due.shown, due.busy)

    async def finish(self, change: Change) -> str:
        """Finish a change begun by an earlier process, or take the change back; returns why neither is possible.

        A GPU that is gone keeps its change.
        """
        known = self._journal.changes(OWNER)
        if known is not None and change.number not in {one.number for one in known}:
            return ""
        try:
            progress = read_progress(change)
            gpu = self._reporter.find_gpu(change.gpu)
        except (ChangeUnreadable, ControlRefused) as error:
            self._reporter.set_condition(HALF, change.gpu, str(error))
            return str(error)
        wanted = progress.intent.wanted.describe()
        shown = GpuChange(gpu=gpu.uuid, index=gpu.index, wanted=wanted, doing="goes on after a restart")
        self._reporter.show(shown)
        try:
            async with self._turn:
                await self._carry(gpu, change.number, progress, shown)
        except NodeagentError as error:
            self._reporter.set_condition(HALF, gpu.uuid, str(error))
            return str(error)
        finally:
            await self._sessions.close()
            self._reporter.show(shown, is_over=True)
        return ""

    def _require_current(self, gpu: Gpu, request: LayoutRequest) -> None:
        """Check the judgement again: other GPUs were waited for and changed since."""
        others = list_others(self._reporter.read(Offering), self._list_held())
        if gpu.uuid in others or not self._reporter.is_requested(request):
            raise RequestSuperseded(request.layout)

    async def _settle_outdone(self, gpu: Gpu) -> None:
        """Settle an older change, or a restart would resume it against the users of the new devices."""
        for one in self._journal.changes(OWNER) or ():
            if one.gpu == gpu.uuid:
                await self._journal.settle_change(one.number, OUTDONE)

    async def _carry(
        self, gpu: Gpu, number: int, progress: Progress, shown: GpuChange, busy: frozenset[int] = frozenset()
    ) -> End:
        """Carry a change to its end and wait until the result is seen: before, no pod may be given the GPU."""
        carrier = Carrier(self._journal, await self._sessions.get(), self._teller(shown), self._now)
        end = await carrier.carry(gpu, number, progress, busy)
        await self._journal.settle_change(number, end.outcome)
        self._reporter.publish_end(gpu, end, layout=progress.intent.layout)
        intent = progress.intent
        goals = {Outcome.DONE: Goal(wanted=intent.wanted), Outcome.UNDONE: Goal(before=intent.before)}
        goal = goals.get(end.outcome)
        if goal is None:
            await self._wait_shown(gpu)
            return end
        is_seen = await self._reporter.wait_until(
            lambda: goal.is_reached(read_partitions(self._reporter.find_gpu(gpu.uuid))), SEEN_SECONDS
        )
        return end if is_seen or end.detail else replace(end, detail=UNSEEN)

    async def _wait_shown(self, gpu: Gpu) -> None:
        """Wait until a GPU short of the goal is seen in its present state, where the driver can read partitions."""
        try:
            partitions = await (await self._sessions.get()).read(gpu)
        except NodeagentError:
            return  # `publish_end` has had the GPU polled, and the poll reports the error
        await self._reporter.wait_until(lambda: is_shown(self._reporter.find_gpu(gpu.uuid), partitions), TOLD_SECONDS)

    def _teller(self, change: GpuChange) -> Callable[[Write], None]:
        done = 0

        def tell(write: Write) -> None:
            nonlocal done
            self._reporter.show(replace(change, doing=write.describe(), done=done))
            done += 1

        return tell
