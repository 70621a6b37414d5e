"""The host's ports for the driver component, with file work in a worker thread and bounded in time.

Owns the two small adapters `HostDeviceNodes` and `MarkerDirectory`. Refuses to decide on nodes and markers.
"""

from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from pathlib import Path

from nodeagent.core.children.worker_thread import WorkerThread
from nodeagent.core.errors import WorkerError
from nodeagent.edge.host.devices.device_node_files import DeviceNodeFiles
from nodeagent.edge.host.driver.change_watch import WATCH_TIMEOUT_SECONDS
from nodeagent.edge.host.errors import FileNotWritten, FileUnreadable, HostStuck
from nodeagent.edge.host.files.atomic_file import identify, read_bounded, remove_leftovers, write_atomically
from nodeagent.edge.host.host_worker import HostWorker
from nodeagent.model.driver import NodeRepair

_MARKER_LIMIT_BYTES = 64 * 1024
_MARKER_MODE = 0o644
_DIRECTORY_MODE = 0o755


class HostDeviceNodes:
    """The port `DeviceNodes`: repairs the nodes of the dev root that the probe found last."""

    def __init__(
        self, read_files: Callable[[], DeviceNodeFiles], worker: WorkerThread, *, timeout_seconds: float = 5.0
    ) -> None:
        self._read_files, self._worker, self._timeout_seconds = read_files, worker, timeout_seconds

    async def repair(self) -> NodeRepair:
        """Repair the device nodes; a hanging file system is a failed repair."""
        repair = self._read_files().repair
        try:
            return await self._worker.run(repair, timeout_seconds=self._timeout_seconds, what="repairing device nodes")
        except WorkerError as error:
            return NodeRepair(failed=(str(error),))


class MarkerDirectory:
    """The marker files by which operands learn the state of the node's driver."""

    def __init__(
        self, directory: Path, worker: WorkerThread, *, timeout_seconds: float = 5.0, poll_seconds: float = 0.5
    ) -> None:
        self._directory, self._poll_seconds = directory, poll_seconds
        self._worker = HostWorker(worker, directory, timeout_seconds)
        self._watcher = HostWorker(worker, directory, WATCH_TIMEOUT_SECONDS)
        self._names: tuple[str, ...] = ()
        self._seen: tuple[object, ...] | None = None

    async def read_markers(self, names: Sequence[str]) -> Mapping[str, str]:
        """Names and contents of the existing markers."""
        self._names = tuple(names)
        return await self._worker.run(self._read, "reading validation markers")

    async def write_marker(self, name: str, content: str) -> None:
        """Put a marker in place, and a missing directory; `wait_change` asks for another reading."""
        await self._worker.run(lambda: self._write(name, content), "writing a validation marker")

    async def remove_marker(self, name: str) -> None:
        """Remove a marker; fine when already gone."""
        await self._worker.run(lambda: self._remove(name), "removing a validation marker")

    async def wait_change(self) -> None:
        """Return within a second of any marker being written, replaced or removed.

        Markers are polled twice a second: a watch on a missing directory would need another watch on the parents.
        A directory that does not answer may have changed; the next reader gets the error.
        """
        with suppress(HostStuck):
            await self._watcher.wait_change(
                self._identify, lambda: self._seen, "watching validation markers", poll_seconds=self._poll_seconds
            )

    def _read(self) -> dict[str, str]:
        # Before the contents, so that the next comparison sees a change during the reading.
        self._seen = self._identify()
        found: dict[str, str] = {}
        for name in self._names:
            # A killed agent's leftovers go now: the marker itself may be right, and never be written again.
            remove_leftovers(self._directory / name)
            try:
                content = read_bounded(self._directory / name, limit_bytes=_MARKER_LIMIT_BYTES)
            except FileUnreadable as error:
                if error.is_absent:
                    continue
                raise
            found[name] = content.decode("utf-8", "replace")
        return found

    def _write(self, name: str, content: str) -> None:
        path = self._directory / name
        # The earlier fingerprint is void: a marker removed at once would look as if never written.
        self._seen = None
        try:
            self._directory.mkdir(mode=_DIRECTORY_MODE, parents=True, exist_ok=True)
        except OSError as error:
            raise FileNotWritten(path, "create its directory", error, replaced=False) from error
        write_atomically(path, content.encode(), mode=_MARKER_MODE, only_writer=True)

    def _remove(self, name: str) -> None:
        path = self._directory / name
        self._seen = None
        remove_leftovers(path)
        try:
            path.unlink(missing_ok=True)
        except OSError as error:
            raise FileNotWritten(path, "remove it", error, replaced=False) from error

    def _identify(self) -> tuple[object, ...]:
        return tuple(identify(self._directory / name, follow_symlink=False) for name in self._names)
