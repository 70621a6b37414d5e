"""The only session in which compute modes are set: shared by all users of the moment, ended by the last.

Owns when a session begins and ends: a session is a process that takes a fraction of a second to start, and eight
daemons starting at once share a session.
"""

from collections.abc import AsyncIterator, Callable
from contextlib import AbstractAsyncContextManager, AbstractContextManager, AsyncExitStack, asynccontextmanager

from nodeagent.model.ports import GpuPartitioning, PartitionSession


class ComputeModes:
    """At most one session at a time; belongs to the event loop's thread."""

    def __init__(
        self,
        partitioning: GpuPartitioning,
        turn: AbstractAsyncContextManager[object],
        shield: Callable[[], AbstractContextManager[object]],
    ) -> None:
        """`turn` admits callers singly; calls within a `shield` are not cancelled."""
        self._partitioning, self._turn, self._shield = partitioning, turn, shield
        self._users = 0
        self._stack = AsyncExitStack()
        self._session: PartitionSession | None = None

    @asynccontextmanager
    async def open(self) -> AsyncIterator[PartitionSession]:
        """The session, for as long as the block lasts."""
        self._users += 1
        try:
            yield await self._get()
        finally:
            self._users -= 1
            # Also for a cancelled user: the session would be left open for ever.
            with self._shield():
                await self._end_unused()

    async def _get(self) -> PartitionSession:
        async with self._turn:
            if self._session is None:
                stack = AsyncExitStack()
                self._session = await stack.enter_async_context(self._partitioning.begin())
                self._stack = stack
            return self._session

    async def _end_unused(self) -> None:
        """End an unused session; a caller meanwhile waits for the end, and begins another."""
        async with self._turn:
            if self._users == 0 and self._session is not None:
                self._session = None
                await self._stack.aclose()
