"""The only session in which GPUs are cut: begun before the first call, and ended while users are waited for.

Owns when a session begins and ends: a worker process costs a fraction of a second to start, and is kept no longer than
needed.
"""

from contextlib import AsyncExitStack

from nodeagent.model.ports import GpuPartitioning, PartitionSession


class SessionDesk:
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
