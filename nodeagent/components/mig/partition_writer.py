"""Makes single MIG devices for their keys, and removes them again.

Owns the devices of each key: as long as a key has a device, its change stays open in the journal, with each call
written before it is made.
Refuses to disturb: other devices stay, and MIG is switched only on an unused GPU.
"""

from collections.abc import Callable, Mapping
from contextlib import AbstractAsyncContextManager
from typing import Final

from nodeagent.components.mig.apply import SEEN_SECONDS
from nodeagent.components.mig.carry import End, PartitionSessions
from nodeagent.components.mig.report_task import MigReporter
from nodeagent.components.mig.users import Users
from nodeagent.model.errors import ControlRefused, GpuError, NodeagentError
from nodeagent.model.gpu import Gpu, MigDevice
from nodeagent.model.ids import GpuUuid
from nodeagent.model.mig import GpuChange, GpuInstance, GpuPartitions, PartitionRequest, Write, WriteKind
from nodeagent.model.ports import ChangeJournal
from nodeagent.rules.mig.affected import describe_in_the_way
from nodeagent.rules.mig.change import ChangeUnreadable, Outcome, write_step
from nodeagent.rules.mig.partitions import LayoutInfeasible, is_shown
from nodeagent.rules.mig.single import (
    OWNER,
    Holding,
    Phase,
    begin_holding,
    find_instance,
    phase_step,
    plan_making,
    plan_removal,
    read_holding,
)
from nodeagent.rules.mig.steps import RebootNeeded

ROUNDS: Final = 5
"""The most reads of a GPU per direction: mode, reset, instance, and the last read, which finds all well."""
_MODES: Final = frozenset({WriteKind.MODE_ON, WriteKind.MODE_OFF, WriteKind.RESET})


class PartitionWriter:
    """The port `PartitionMaking`, for as long as the component lives."""

    def __init__(
        self,
        reporter: MigReporter,
        journal: ChangeJournal,
        sessions: PartitionSessions,
        users: Users,
        turn: AbstractAsyncContextManager[None],
        now: Callable[[], float],
    ) -> None:
        """`turn` is the lock shared by all changes."""
        self._reporter, self._journal, self._sessions = reporter, journal, sessions
        self._users, self._turn, self._now = users, turn, now

    def partitions(self) -> Mapping[str, PartitionRequest] | None:
        """The wanted device of each key."""
        holdings = self._list()
        return None if holdings is None else {one.key: one.request for one in holdings}

    def list_gpus(self) -> frozenset[GpuUuid]:
        """The GPUs with a device of any key."""
        return frozenset(one.request.gpu for one in self._list() or ())

    async def make_partition(self, key: str, request: PartitionRequest) -> MigDevice:
        """The MIG device of a key from now on; the port's contract is in `model.ports`."""
        async with self._turn:
            holding = self._find(key)
            if holding is not None and holding.request != request:
                raise ControlRefused(
                    f"{key} has {holding.request.describe()} of {holding.request.gpu} already: remove it before it gets"
                    f" {request.describe()}"
                )
            gpu = self._reporter.find_gpu(request.gpu)
            try:
                return await self._make(gpu, key, request, holding)
            except (LayoutInfeasible, RebootNeeded) as error:
                raise ControlRefused(f"GPU {gpu.index} ({gpu.name}): {_explain(error)}") from error
            finally:
                await self._sessions.close()

    async def remove_partition(self, key: str) -> None:
        """Remove the device of a key; the port's contract is in `model.ports`."""
        async with self._turn:
            holding = self._find(key)
            if holding is not None:
                await self._remove(holding)

    async def finish(self) -> dict[GpuUuid, str]:
        """Undo devices half made when the agent died, and go on with removals; returns failures by GPU."""
        left: dict[GpuUuid, str] = {}
        changes = self._journal.changes(OWNER) or ()
        if not changes:
            return left
        async with self._turn:
            for change in changes:
                try:
                    holding = read_holding(change)
                    if holding.phase is not Phase.MADE:
                        await self._remove(holding)
                except (ChangeUnreadable, NodeagentError) as error:
                    left[change.gpu] = str(error)
        return left

    def _list(self) -> tuple[Holding, ...] | None:
        changes = self._journal.changes(OWNER)
        if changes is None:
            return None
        holdings = []
        for change in changes:
            try:
                holdings.append(read_holding(change))
            except ChangeUnreadable:
                continue  # reported by `finish`
        return tuple(holdings)

    def _find(self, key: str) -> Holding | None:
        holdings = self._list()
        if holdings is None:
            raise ControlRefused("the journal is not known yet: ask again")
        return next((one for one in holdings if one.key == key), None)

    async def _make(self, gpu: Gpu, key: str, request: PartitionRequest, holding: Holding | None) -> MigDevice:
        session = await self._sessions.get()
        partitions = await session.read(gpu)
        is_own = holding is not None and holding.has_created
        writes = plan_making(request, partitions, is_own=is_own)
        if any(write.kind in _MODES for write in writes):
            await self._refuse_used(gpu)
        if writes:
            _require_shown(gpu, is_so=await self._wait_shown(gpu, partitions))
        if holding is None:
            switched = not partitions.enabled or any(
                one.switched for one in self._list() or () if one.request.gpu == gpu.uuid
            )
            step = begin_holding(key, request, self._now(), switched=switched)
            number = await self._journal.begin_change(OWNER, gpu.uuid, step)
            holding = Holding(number=number, key=key, request=request, switched=switched)
        try:
            await self._reach(gpu, holding, is_own=is_own)
            if holding.phase is not Phase.MADE:
                await self._journal.step_change(holding.number, phase_step(Phase.MADE, self._now()))
        except (NodeagentError, LayoutInfeasible, RebootNeeded) as error:
            await self._take_back(key, _explain(error))
            raise
        made = find_instance(request, await session.read(gpu))
        if writes:
            self._reporter.publish_end(gpu, End(outcome=Outcome.DONE), device=request.describe())
        device = await self._wait_device(gpu, made) if made is not None else None
        return _require_seen(device, gpu, request)

    async def _wait_shown(self, gpu: Gpu, partitions: GpuPartitions) -> bool:
        """Wait for an up-to-date inventory: a removed device, still seen, could be taken for its successor."""

        def is_so() -> bool:
            return is_shown(self._reporter.find_gpu(gpu.uuid), partitions)

        if not is_so():
            self._reporter.publish_stale(gpu)
        return await self._reporter.wait_until(is_so, SEEN_SECONDS)

    async def _wait_device(self, gpu: Gpu, made: GpuInstance) -> MigDevice | None:
        """The device in an instance, once seen, perhaps already."""

        def find() -> MigDevice | None:
            devices = self._reporter.find_gpu(gpu.uuid).mig_devices
            return next((one for one in devices if one.gpu_instance_id == made.id), None)

        await self._reporter.wait_until(lambda: find() is not None, SEEN_SECONDS)
        return find()

    async def _reach(self, gpu: Gpu, holding: Holding, *, is_own: bool) -> None:
        was_reset = False
        session = await self._sessions.get()
        for _ in range(ROUNDS):
            writes = plan_making(holding.request, await session.read(gpu), is_own=is_own, was_reset=was_reset)
            if not writes:
                return
            for write in writes:
                was_reset = was_reset or write.kind is WriteKind.RESET
                is_own = is_own or write.kind is WriteKind.CREATE
                await self._write(gpu, holding, write)
        raise GpuError(f"GPU {gpu.index} is not as it shall be although the driver refused nothing")

    async def _write(self, gpu: Gpu, holding: Holding, write: Write) -> None:
        await self._journal.step_change(holding.number, write_step((write,), self._now()))
        keeps = tuple(device.uuid for device in gpu.mig_devices)
        change = GpuChange(
            gpu=gpu.uuid, index=gpu.index, wanted=holding.request.describe(), doing=write.describe(), keeps=keeps
        )
        self._reporter.show(change)
        try:
            await (await self._sessions.get()).write(gpu, write)
        finally:
            self._reporter.show(change, is_over=True)

    async def _refuse_used(self, gpu: Gpu) -> None:
        found = await self._users.find_in_the_way(gpu, (gpu.uuid, *(device.uuid for device in gpu.mig_devices)))
        if found:
            names = describe_in_the_way(found)
            raise ControlRefused(f"GPU {gpu.index} is used by {names}: MIG cannot be switched on now")

    async def _take_back(self, key: str, reason: str) -> None:
        """Undo a failed making: remove any remains; remains that cannot go stay the key's, and are retried."""
        holding = self._find(key)
        assert holding is not None
        try:
            await self._remove(holding, Outcome.UNDONE, reason)
        except NodeagentError as error:
            gpu = self._reporter.find_gpu(holding.request.gpu)
            end = End(outcome=Outcome.HALF, detail=f"{reason}; then, on the way back: {error}")
            self._reporter.publish_end(gpu, end, device=holding.request.describe())

    async def _remove(self, holding: Holding, outcome: Outcome = Outcome.DONE, reason: str = "") -> None:
        gpu = self._reporter.find_gpu(holding.request.gpu)
        others = [one for one in self._list() or () if one.number != holding.number]
        if holding.phase is not Phase.LEAVING:
            await self._journal.step_change(holding.number, phase_step(Phase.LEAVING, self._now()))
        was_reset, detail = False, reason
        try:
            session = await self._sessions.get()
            for _ in range(ROUNDS):
                writes = plan_removal(holding, await session.read(gpu), others, was_reset=was_reset)
                if not writes:
                    break
                was_reset = was_reset or writes[0].kind is WriteKind.RESET
                try:
                    for write in writes:
                        await self._write(gpu, holding, write)
                except NodeagentError as error:
                    if writes[0].kind not in _MODES:
                        raise
                    # The device is gone, as asked for; MIG staying on is no reason to let the caller wait.
                    detail = f"{reason}; MIG stays on: {error}" if reason else f"MIG stays on: {error}"
                    break
            else:
                raise GpuError(f"GPU {gpu.index} is as it was although the driver refused nothing")
        finally:
            await self._sessions.close()
        await self._journal.settle_change(holding.number, outcome)
        what = holding.request.describe()
        device = f"the end of {what}" if outcome is Outcome.DONE else what
        self._reporter.publish_end(gpu, End(outcome=outcome, detail=detail), device=device)


def _require_shown(gpu: Gpu, *, is_so: bool) -> None:
    if not is_so:
        raise ControlRefused(f"GPU {gpu.index} is not seen as it is by now: ask again")


def _require_seen(device: MigDevice | None, gpu: Gpu, request: PartitionRequest) -> MigDevice:
    if device is None:
        raise ControlRefused(f"GPU {gpu.index}: {request.describe()} was made, and is not seen: ask again")
    return device


def _explain(error: Exception) -> str:
    return str(error) or "a reset did not bring MIG into force: boot the node"
