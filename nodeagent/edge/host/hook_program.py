"""Puts the hook program where the container runtime starts it.

Owns the copy on the host. The program comes with the package, built from `hook/nodeagent-cdi-hook.c` by `make hook`.
It is replaced by rename, so that a container that starts meanwhile runs the old one or the new one.
"""

from pathlib import Path
from typing import Final

from nodeagent.edge.host.atomic_file import read_bounded
from nodeagent.edge.host.errors import FileNotWritten, FileUnreadable, HookProgramMissing, HostStuck
from nodeagent.edge.host.host_paths import HostPaths
from nodeagent.kernel.errors import WorkerError
from nodeagent.kernel.worker_thread import WorkerThread

BUILT: Final = Path(__file__).parent / "hook" / "nodeagent-cdi-hook"
_MODE: Final = 0o755
_TIMEOUT_SECONDS: Final = 10.0


class HookProgram:
    """The port `HookInstaller`."""

    def __init__(self, worker: WorkerThread, *, built: Path = BUILT, host: HostPaths | None = None) -> None:
        self._worker, self._built, self._host = worker, built, host or HostPaths()

    async def install(self, path: Path) -> bool:
        """Have exactly our program at a path of the host's; False when it was there already."""
        try:
            return await self._worker.run(
                lambda: self._install(path), timeout_seconds=_TIMEOUT_SECONDS, what="installing the hook program"
            )
        except WorkerError as error:
            raise HostStuck(path, str(error)) from error

    def _install(self, path: Path) -> bool:
        try:
            program = read_bounded(self._built)
        except FileUnreadable as error:
            raise HookProgramMissing(self._built) from error
        place = self._host.here(str(path))
        if self._host.read(str(path)) == program and place.stat().st_mode & _MODE == _MODE:
            return False
        self._host.write(str(path), program, mode=_MODE)
        try:
            # A file that was there keeps its mode when its content is replaced.
            place.chmod(_MODE)
        except OSError as error:
            raise FileNotWritten(path, "make it executable", error, replaced=True) from error
        return True
