"""The node's facts for the event loop: read in a worker thread and bounded in time.

Owns nothing but the use of the thread. A hanging file system gives an error, not half a node.
"""

from collections.abc import Callable
from pathlib import Path

from nodeagent.core.children.worker_thread import WorkerThread
from nodeagent.core.errors import WorkerError
from nodeagent.edge.host.errors import HostStuck
from nodeagent.model.labels import NodeFacts

_TIMEOUT_SECONDS = 5.0


class HostNodeFacts:
    """The node apart from its GPUs."""

    def __init__(self, read: Callable[[], NodeFacts], worker: WorkerThread, sys_root: Path) -> None:
        self._read, self._worker, self._sys_root = read, worker, sys_root

    async def read_facts(self) -> NodeFacts:
        """Read the facts; an unreadable fact is empty.

        Raises:
            NodeagentError: The node's own files do not answer.
        """
        try:
            return await self._worker.run(self._read, timeout_seconds=_TIMEOUT_SECONDS, what="reading the node's facts")
        except WorkerError as error:
            raise HostStuck(self._sys_root, str(error)) from error
