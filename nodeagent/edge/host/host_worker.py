"""Work on the host's files in a worker thread, bounded in time."""

from collections.abc import Callable
from pathlib import Path
from typing import TypeVar

import anyio

from nodeagent.core.children.worker_thread import WorkerThread
from nodeagent.core.errors import WorkerError
from nodeagent.core.life.ticker import until_beat
from nodeagent.edge.host.errors import HostStuck

T = TypeVar("T")


class HostWorker:
    """A worker thread for the files below one path."""

    def __init__(self, thread: WorkerThread, path: Path, timeout_seconds: float) -> None:
        self._thread, self._path, self._timeout_seconds = thread, path, timeout_seconds

    async def run(self, call: Callable[[], T], what: str, *, patience_seconds: float = 0.0) -> T:
        """The result of `call`, for which the event loop stands still during the patience.

        Raises:
            HostStuck: The file system does not answer.
        """
        try:
            return await self._thread.run(
                call, timeout_seconds=self._timeout_seconds, what=what, patience_seconds=patience_seconds
            )
        except WorkerError as error:
            raise HostStuck(self._path, str(error)) from error

    async def wait_change(
        self, identify: Callable[[], object], seen: Callable[[], object], what: str, *, poll_seconds: float
    ) -> None:
        """Return when the files' identity differs from the identity last seen."""
        while True:
            # Shielded, because the thread of a cancelled call is set aside as stuck.
            with anyio.CancelScope(shield=True):
                now = await self.run(identify, what)
            if now != seen():
                return
            await anyio.sleep(until_beat(poll_seconds))

    def close(self) -> None:
        """Let the thread end."""
        self._thread.close()
