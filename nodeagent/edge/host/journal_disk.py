"""The allocation journal as the event loop uses it: file work in a thread of its own, bounded in time, under a lock.

Owns the lock of the state directory and the one file object in use.
Refuses to trust a file after a failure: the next `begin` takes a fresh one, so that a call that still hangs in the old
one cannot write into the new.

A durable append takes about 0.1 ms on a good disk and another 0.1 ms on the way through the thread; on a bad disk it
takes seconds, which the event loop must not spend.
"""

from collections.abc import Callable
from pathlib import Path
from typing import Final, TypeVar

import anyio

from nodeagent.edge.host.errors import FileNotWritten, StateLocked
from nodeagent.edge.host.journal_file import JournalFile, JournalFiles
from nodeagent.edge.host.state_lock import StateLock
from nodeagent.kernel.errors import WorkerError
from nodeagent.kernel.log import get_logger
from nodeagent.kernel.worker_thread import WorkerThread
from nodeagent.model.errors import JournalUnavailable

T = TypeVar("T")

JOURNAL_NAME: Final = "allocations.journal"
LOCK_NAME: Final = "state.lock"
READ_SECONDS: Final = 10.0
WRITE_SECONDS: Final = 2.0
"""How long a pod's admission may wait for the disk; the kubelet itself would wait for ever."""


class JournalDisk:
    """The journal in one directory; belongs to the event loop's thread."""

    def __init__(
        self, directory: Path, *, write_seconds: float = WRITE_SECONDS, read_seconds: float = READ_SECONDS
    ) -> None:
        self._directory = directory
        self._write_seconds, self._read_seconds = write_seconds, read_seconds
        self._log = get_logger(component="journal")
        self._worker = WorkerThread("journal")
        self._file = JournalFile(directory, JOURNAL_NAME)
        self._lock = StateLock(directory / LOCK_NAME)
        self._locked = False
        self._failed = False

    @property
    def path(self) -> str:
        """Where the journal is, for people."""
        return str(self._file.path)

    @property
    def size_bytes(self) -> int:
        """How large it is."""
        return self._file.size_bytes

    async def open(self) -> JournalFiles:
        """Take the lock and read what the last agent left.

        Raises:
            StateLocked: another agent is using the directory.
            JournalUnavailable: the directory is not fit; `begin` tries again.
        """
        await self._do(self._take_directory, self._read_seconds, "opening the state directory")
        return await self._do(self._file.read, self._read_seconds, "reading the allocation journal")

    async def set_aside(self, stamp: str) -> None:
        """Keep a damaged journal under another name.

        Raises:
            JournalUnavailable: it stays where it is.
        """
        await self._do(lambda: self._file.set_aside(stamp), self._read_seconds, "setting the damaged journal aside")

    async def begin(self, content: bytes) -> None:
        """Replace the journal durably, whatever happened to the last one.

        Raises:
            JournalUnavailable: it could not be done now.
        """
        if self._failed:
            self._file = JournalFile(self._directory, JOURNAL_NAME)
        file = self._file

        def begin() -> None:
            if self._failed or not self._locked:
                try:
                    self._take_directory()
                except StateLocked as error:
                    raise JournalUnavailable(self.path, str(error)) from error
            file.begin(content)

        await self._do(begin, self._write_seconds, "beginning the allocation journal")
        self._failed = False

    async def append(self, content: bytes, *, durable: bool = True) -> None:
        """Add to the journal, durably where somebody relies on it.

        Raises:
            JournalUnavailable: it may or may not be there; `begin` is needed.
        """
        file = self._file
        await self._do(
            lambda: file.append(content, durable=durable), self._write_seconds, "writing the allocation journal"
        )

    async def aclose(self) -> None:
        """Let go of file, lock and thread, after the call that may be under way; what was acknowledged is durable."""
        with anyio.CancelScope(shield=True):
            try:
                await self._worker.run(
                    self._file.close, timeout_seconds=self._write_seconds, what="closing the journal"
                )
            except WorkerError as error:
                # The hung call still has the file, which must not be closed under it: it goes with the process.
                self._log.warning("journal_not_closed", path=self.path, error=str(error))
            self._lock.release()
            self._locked = False
            self._worker.close()

    def _take_directory(self) -> None:
        """In the thread: make the directory fit, and make sure that it is ours."""
        self._file.prepare()
        if not self._locked:
            try:
                self._lock.acquire()
            except FileNotWritten as error:
                raise JournalUnavailable(self.path, str(error)) from error
            self._locked = True

    async def _do(self, call: Callable[[], T], timeout_seconds: float, what: str) -> T:
        try:
            return await self._worker.run(call, timeout_seconds=timeout_seconds, what=what)
        except WorkerError as error:
            self._failed = True
            raise JournalUnavailable(self.path, str(error)) from error
        except (JournalUnavailable, StateLocked):
            self._failed = True
            raise
