"""The port `ContainerRuntime` on a real host: detection, files, checks and restarts behind one door.

Owns the thread in which file work and tools run; each call is bounded in time.
"""

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TypeVar

from nodeagent.edge.container_runtime.change_files import Restored, RuntimeFiles
from nodeagent.edge.container_runtime.config_files import read_config_tree
from nodeagent.edge.container_runtime.detect import RuntimeDetector
from nodeagent.edge.container_runtime.tools import check_config, restart_runtime
from nodeagent.edge.host.errors import HostStuck
from nodeagent.kernel.errors import WorkerError
from nodeagent.kernel.worker_thread import WorkerThread
from nodeagent.model.runtime import ConfigTree, FileChange, RuntimeEvidence, RuntimeKind

T = TypeVar("T")

_FILE_SECONDS = 10.0
_TOOL_SECONDS = 30.0
_RESTART_SECONDS = 120.0


class HostRuntime:
    """One node's container runtime."""

    def __init__(
        self,
        state_dir: Path,
        detector: RuntimeDetector,
        worker: WorkerThread,
        *,
        restart_timeout_seconds: float = _RESTART_SECONDS,
    ) -> None:
        self._files, self._detector, self._worker = RuntimeFiles(state_dir), detector, worker
        self._state_dir, self._restart_timeout_seconds = state_dir, restart_timeout_seconds

    async def read_evidence(self) -> RuntimeEvidence:
        """Which runtimes there are."""
        return await self._detector.read_evidence()

    async def read_config(self, kind: RuntimeKind, main: str, extra: tuple[str, ...] = ()) -> ConfigTree:
        """The files that it reads."""
        return await self._run(lambda: read_config_tree(kind, main, extra=extra), "reading its files", _FILE_SECONDS)

    async def check(self, kind: RuntimeKind, executable: str, tree: ConfigTree) -> bool:
        """Have its own tool judge a configuration."""
        return await self._run(lambda: check_config(kind, executable, tree), "checking its files", _TOOL_SECONDS)

    async def apply(self, changes: Sequence[FileChange]) -> None:
        """Write them all, or none."""
        await self._run(lambda: self._files.apply(changes), "writing its files", _FILE_SECONDS)

    async def undo(self, changes: Sequence[FileChange]) -> None:
        """Put back what was there before these changes."""
        await self._run(lambda: self._files.undo(changes), "putting its files back", _FILE_SECONDS)

    async def restore(self) -> Restored:
        """Give back everything."""
        return await self._run(self._files.restore, "putting its files back", _FILE_SECONDS)

    async def restart(self, command: Sequence[str]) -> None:
        """Restart it through its service manager."""
        seconds = self._restart_timeout_seconds
        # A second more for the thread, so that the command's own timeout is the one that is told.
        await self._run(lambda: restart_runtime(command, timeout_seconds=seconds), "restarting it", seconds + 1.0)

    def close(self) -> None:
        """Let the thread end."""
        self._worker.close()

    async def _run(self, call: Callable[[], T], what: str, seconds: float) -> T:
        try:
            return await self._worker.run(call, timeout_seconds=seconds, what=f"container runtime: {what}")
        except WorkerError as error:
            raise HostStuck(self._state_dir, str(error)) from error
