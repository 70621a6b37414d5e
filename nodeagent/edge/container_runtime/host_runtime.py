"""The port `ContainerRuntime` on a real host: detection, files, checks and restarts in one class.

Owns the thread for file work and tools; each call is bounded in time.
"""

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TypeVar

from nodeagent.core.children.worker_thread import WorkerThread
from nodeagent.edge.container_runtime.change_files import RuntimeFiles
from nodeagent.edge.container_runtime.config_files import read_config_tree
from nodeagent.edge.container_runtime.detect import RuntimeDetector
from nodeagent.edge.container_runtime.starts import list_daemons, measure_start, restart_runtime
from nodeagent.edge.container_runtime.tools import check_config, find_host_root
from nodeagent.edge.container_runtime.trial import try_out
from nodeagent.edge.host.files.atomic_file import identify
from nodeagent.edge.host.host_worker import HostWorker
from nodeagent.edge.host.machine.host_paths import HostPaths
from nodeagent.model.ports import Withdraw
from nodeagent.model.runtime import (
    ConfigTree,
    DaemonProcess,
    FileChange,
    Restored,
    RuntimeEvidence,
    RuntimeKind,
    TrialAnswer,
)
from nodeagent.model.runtimes import RUNTIMES

T = TypeVar("T")

_FILE_SECONDS = 10.0
_TOOL_SECONDS = 30.0
_POLL_SECONDS = 1.0


class HostRuntime:
    """The container runtime of the node."""

    def __init__(
        self,
        state_dir: Path,
        detector: RuntimeDetector,
        worker: WorkerThread,
        *,
        host_root: Path = Path("/"),
        proc_root: Path = Path("/proc"),
    ) -> None:
        self._host = HostPaths(host_root)
        self._files, self._detector, self._worker = RuntimeFiles(state_dir, self._host), detector, worker
        self._state_dir, self._proc_root = state_dir, proc_root
        self._paths: tuple[str, ...] = ()
        self._seen: tuple[object, ...] = ()

    async def read_evidence(self) -> RuntimeEvidence:
        """Detect the node's runtimes."""
        return await self._detector.read_evidence()

    async def read_config(self, kind: RuntimeKind, main: str, extra: tuple[str, ...] = ()) -> ConfigTree:
        """Read the runtime's configuration files."""

        def read() -> ConfigTree:
            while True:
                # Before the contents, so that the next comparison sees a change during the reading; with files not
                # known before, all files are read once more.
                self._seen = self._identify()
                tree = read_config_tree(kind, main, extra=extra, host=self._host)
                before, self._paths = self._paths, tuple(file.path for file in tree.files)
                if self._paths == before:
                    return tree

        return await self._run(read, "reading its files", _FILE_SECONDS)

    async def wait_change(self) -> None:
        """Return within two seconds of a change to a file read last, or to the directory of such a file."""
        worker = HostWorker(self._worker, self._state_dir, _FILE_SECONDS)
        await worker.wait_change(
            self._identify, lambda: self._seen, "container runtime: watching its files", poll_seconds=_POLL_SECONDS
        )

    async def check(self, kind: RuntimeKind, executable: str, tree: ConfigTree) -> bool:
        """Have the runtime's own tool judge a configuration."""
        return await self._run(
            lambda: check_config(kind, executable, tree, self._find_programs()), "checking its files", _TOOL_SECONDS
        )

    async def try_out(self, executable: str, main: str, tree: ConfigTree) -> TrialAnswer:
        """Start the runtime's own program on the side, ask the trial daemon, and end the daemon."""
        return await self._run(
            lambda: try_out(executable, main, tree, self._find_programs()), "trying its files out", _TOOL_SECONDS
        )

    async def apply(self, changes: Sequence[FileChange]) -> None:
        """Write all files, or none."""
        await self._run(lambda: self._files.apply(changes), "writing its files", _FILE_SECONDS)

    async def undo(self, changes: Sequence[FileChange]) -> None:
        """Put back the content from before the changes."""
        await self._run(lambda: self._files.undo(changes), "putting its files back", _FILE_SECONDS)

    async def restore(self, withdraw: Withdraw) -> Restored:
        """Restore all files."""
        return await self._run(lambda: self._files.restore(withdraw), "putting its files back", _FILE_SECONDS)

    async def restart(self, command: Sequence[str]) -> None:
        """Restart the runtime through the service manager."""
        await restart_runtime(command, self._find_programs().root)

    async def measure_start(self, command: Sequence[str], timeout_seconds: float) -> float:
        """How long the runtime's last start took."""
        return await self._run(
            lambda: measure_start(command, timeout_seconds, self._find_programs().root),
            "asking how long it took to start",
            timeout_seconds + 1.0,
        )

    async def list_daemons(self, kind: RuntimeKind) -> tuple[DaemonProcess, ...]:
        """The runtime's processes."""
        program = RUNTIMES[kind].program
        return await self._run(
            lambda: list_daemons(program, self._proc_root), "looking at its processes", _FILE_SECONDS
        )

    def close(self) -> None:
        """Let the thread end."""
        self._worker.close()

    def _find_programs(self) -> HostPaths:
        """The host's root for programs: the root named by the settings, else the root of the host's first process."""
        return HostPaths(find_host_root(self._proc_root)) if self._host.is_own else self._host

    def _identify(self) -> tuple[object, ...]:
        directories = {str(Path(path).parent) for path in self._paths}
        return tuple(identify(self._host.here(path)) for path in (*self._paths, *sorted(directories)))

    async def _run(self, call: Callable[[], T], what: str, seconds: float) -> T:
        return await HostWorker(self._worker, self._state_dir, seconds).run(call, f"container runtime: {what}")
