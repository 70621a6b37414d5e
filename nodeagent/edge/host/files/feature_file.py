"""A feature file of node feature discovery, with its file work in a worker thread and bounded in time.

Owns one file in the directory of local features. Refuses to create that directory: the directory exists where node
feature discovery runs, and a file without a reader would look like labels that never come.
"""

from pathlib import Path

from nodeagent.core.children.worker_thread import WorkerThread
from nodeagent.edge.host.errors import FileNotWritten, FileUnreadable
from nodeagent.edge.host.files.atomic_file import read_bounded, remove_leftovers, write_atomically
from nodeagent.edge.host.host_worker import HostWorker

_LIMIT_BYTES = 65_536
"""Node feature discovery ignores larger files."""
_TIMEOUT_SECONDS = 5.0


class FeatureFile:
    """Reads and replaces the text of one feature file."""

    def __init__(self, path: Path, worker: WorkerThread) -> None:
        self.path, self._worker = path, HostWorker(worker, path, _TIMEOUT_SECONDS)

    async def read(self) -> str:
        """The file's text; empty without a file."""
        return await self._worker.run(self._read, "reading the feature file")

    async def write(self, text: str) -> None:
        """Replace the file, whole."""
        await self._worker.run(lambda: self._write(text), "writing the feature file")

    async def remove(self) -> bool:
        """Remove the file; False without a file."""
        return await self._worker.run(self._remove, "removing the feature file")

    def _read(self) -> str:
        # A killed agent's leftovers go now: the file itself may be right, and never be written again.
        remove_leftovers(self.path)
        try:
            return read_bounded(self.path, limit_bytes=_LIMIT_BYTES).decode("utf-8", "replace")
        except FileUnreadable as error:
            if error.is_absent:
                return ""
            raise

    def _write(self, text: str) -> None:
        write_atomically(self.path, text.encode(), only_writer=True)

    def _remove(self) -> bool:
        remove_leftovers(self.path)
        try:
            self.path.unlink()
        except FileNotFoundError:
            return False
        except OSError as error:
            raise FileNotWritten(self.path, "remove it", error, replaced=False) from error
        return True
