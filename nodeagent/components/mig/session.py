"""The one session in which GPUs are cut: begun when the first call is due, and given up while somebody is waited for.

Owns when a session begins and ends: a worker process costs a fraction of a second to start, and is kept no longer than
it has something to do.
"""

from contextlib import AsyncExitStack

from nodeagent.model.ports import GpuPartitioning, PartitionSession


class SessionDesk:
    """At most one session at a time."""

    def __init__(self, partitioning: GpuPartitioning) -> None:
        self._partitioning = partitioning
        self._open: tuple[AsyncExitStack, PartitionSession] | None = None

    async def get(self) -> PartitionSession:
        """The session, begun now where there is none."""
        if self._open is None:
            stack = AsyncExitStack()
            self._open = stack, await stack.enter_async_context(self._partitioning.begin())
        return self._open[1]

    async def close(self) -> None:
        """End it, if there is one."""
        if self._open is not None:
            (stack, _), self._open = self._open, None
            await stack.aclose()
