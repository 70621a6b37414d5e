"""Carries a GPU from its present partitions to the wanted partitions; every call is in the journal before it is made.

Owns the way back: a failed call turns the change round, and a failure on the way back leaves the GPU half way.
Refuses to wait and to choose: users were asked before, and the next call follows from the GPU as read.
"""

from collections.abc import Callable, Collection
from contextlib import AsyncExitStack
from typing import Final

from msgspec.structs import replace

from nodeagent.model.errors import DriverError, GpuError, JournalUnavailable, PartitionRefused
from nodeagent.model.gpu import Gpu
from nodeagent.model.mig import Write, WriteKind
from nodeagent.model.ports import ChangeJournal, GpuPartitioning, PartitionSession
from nodeagent.model.values import Value
from nodeagent.rules.mig.change import Outcome, Progress, back_step, write_step
from nodeagent.rules.mig.partitions import LayoutInfeasible
from nodeagent.rules.mig.steps import RebootNeeded, plan_writes

ROUNDS: Final = 6
"""The most reads of a GPU per direction: mode, reset, instances, and the last read, which finds all well."""
_FAILED = (GpuError, DriverError, LayoutInfeasible, JournalUnavailable)


class End(Value, frozen=True):
    """How a change ended, and why."""

    outcome: Outcome
    detail: str = ""


class NotReachedError(GpuError):
    """All calls succeeded, and the GPU is still not as wanted."""


class Carrier:
    """A change of a GPU; `tell` is called before each write."""

    def __init__(
        self, journal: ChangeJournal, session: PartitionSession, tell: Callable[[Write], None], now: Callable[[], float]
    ) -> None:
        self._journal, self._session, self._tell, self._now = journal, session, tell, now
        self._has_written = False

    async def carry(self, gpu: Gpu, number: int, progress: Progress, busy: Collection[int] = ()) -> End:
        """Carry a change to its end, good or bad; the caller settles the change."""
        self._has_written = progress.has_written
        if not progress.is_going_back:
            try:
                await self._reach(gpu, number, progress, busy)
                return End(outcome=Outcome.DONE)
            except RebootNeeded as waiting:
                detail = str(waiting) or "a reset did not bring its new MIG mode into force"
                return End(outcome=Outcome.REBOOT, detail=detail)
            except _FAILED as error:
                if not self._has_written:
                    return End(outcome=Outcome.UNDONE, detail=str(error))
                progress = replace(progress, is_going_back=True, reason=str(error), writes=())
        try:
            await self._journal.step_change(number, back_step(progress.reason, self._now()))
            await self._reach(gpu, number, progress, busy)
        except (*_FAILED, RebootNeeded) as error:
            said = str(error) or "its MIG mode needs a reboot"
            return End(outcome=Outcome.HALF, detail=f"{progress.reason}; then, on the way back: {said}")
        return End(outcome=Outcome.UNDONE, detail=progress.reason)

    async def _reach(self, gpu: Gpu, number: int, progress: Progress, busy: Collection[int]) -> None:
        was_reset = False
        for _ in range(ROUNDS):
            partitions = await self._session.read(gpu)
            writes = plan_writes(progress.goal, partitions, busy=busy, was_reset=was_reset)
            if not writes:
                return
            await self._journal.step_change(number, write_step(writes, self._now()))
            self._has_written = True
            for write in writes:
                was_reset = was_reset or write.kind is WriteKind.RESET
                self._tell(write)
                await self._write(gpu, write)
        raise NotReachedError(f"GPU {gpu.index} is not as it shall be although the driver refused nothing")

    async def _write(self, gpu: Gpu, write: Write) -> None:
        """Make one call; a reset refused for an unused GPU is left to the machine's next boot.

        Raises:
            RebootNeeded: The MIG mode waits for a boot.
        """
        try:
            await self._session.write(gpu, write)
        except PartitionRefused as error:
            if write.kind is WriteKind.RESET and not error.in_use:
                raise RebootNeeded(str(error)) from error
            raise


class PartitionSessions:
    """At most one session at a time."""

    def __init__(self, partitioning: GpuPartitioning) -> None:
        self._partitioning = partitioning
        self._open: tuple[AsyncExitStack, PartitionSession] | None = None

    async def get(self) -> PartitionSession:
        """The session, begun now if need be."""
        if self._open is None:
            stack = AsyncExitStack()
            self._open = stack, await stack.enter_async_context(self._partitioning.begin())
        return self._open[1]

    async def close(self) -> None:
        """End the session, if any."""
        if self._open is not None:
            (stack, _), self._open = self._open, None
            await stack.aclose()
