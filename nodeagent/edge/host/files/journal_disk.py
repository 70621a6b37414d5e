"""The allocation journal for the event loop: file work in a thread of its own, bounded in time, under a lock.

Owns the lock of the state directory and the one file object in use.
Refuses to trust a file after a failure: the next `begin` takes a fresh file object, so that a call still hanging in the
old object cannot write into the new file.
A durable append takes about 0.1 ms on a good disk, for which the event loop stands still: going on meanwhile would
double that. On a bad disk an append takes seconds or never returns; so the file work stays in its thread, the loop
stands still no longer than its patience, and for a while not at all after an append outlasted the patience
(docs/adr/0006-standing-still-for-a-fast-disk.md).
"""

import os
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Final, TypeVar

import anyio

from nodeagent.core.children.worker_thread import WorkerThread
from nodeagent.core.durations import Durations
from nodeagent.core.errors import WorkerError
from nodeagent.core.log.lines import get_logger
from nodeagent.edge.host.errors import FileNotWritten, StateLocked, describe_os_error
from nodeagent.edge.host.files.journal_file import JournalFile, JournalFiles
from nodeagent.edge.host.files.state_lock import StateLock
from nodeagent.model.errors import JournalUnavailable

T = TypeVar("T")

JOURNAL_NAME: Final = "allocations.journal"
LOCK_NAME: Final = "state.lock"
WRITING: Final = "writing the allocation journal"
READ_SECONDS: Final = 10.0
WRITE_SECONDS: Final = 2.0
"""How long a pod's admission may wait for the disk; the kubelet itself would wait for ever."""
PATIENCE_SECONDS: Final = 0.002
"""How long the event loop may stand still for one append; the loop's lag may be 5 ms."""
SHORTEST_SLOWNESS_SECONDS: Final = 0.01
LONGEST_SLOWNESS_SECONDS: Final = 30.0


def plan_slowness(misses: int) -> float:
    """How long the disk counts as slow after so many appends in a row that outlasted the patience."""
    return min(LONGEST_SLOWNESS_SECONDS, SHORTEST_SLOWNESS_SECONDS * 2.0 ** min(misses - 1, 16))


class JournalTally:
    """Counts of writes since the process began; outlives the disk object that counts."""

    def __init__(self) -> None:
        self.writes = self.failures = 0
        self.syncs = Durations()


class JournalDisk:
    """The journal in one directory; belongs to the event loop's thread."""

    def __init__(
        self,
        directory: Path,
        *,
        write_seconds: float = WRITE_SECONDS,
        read_seconds: float = READ_SECONDS,
        now: Callable[[], float] = time.monotonic,
        tally: JournalTally | None = None,
    ) -> None:
        self._directory, self._now = directory, now
        self._tally = JournalTally() if tally is None else tally
        self._write_seconds, self._read_seconds = write_seconds, read_seconds
        self._log = get_logger(component="journal")
        self._worker = WorkerThread("journal")
        self._file = self._take_file()
        self._lock = StateLock(directory / LOCK_NAME)
        self._locked = False
        self._failed = False
        self._closed = False
        self._misses, self._slow_until = 0, 0.0

    @property
    def path(self) -> str:
        """The journal's path, for people."""
        return str(self._file.path)

    @property
    def size_bytes(self) -> int:
        """The journal's size."""
        return self._file.size_bytes

    async def open(self) -> JournalFiles:
        """Take the lock and read the last agent's journal.

        Raises:
            StateLocked: Another agent is using the directory.
            JournalUnavailable: The directory is not fit; `begin` tries again.
        """
        await self._do(self._take_directory, self._read_seconds, "opening the state directory")
        return await self._do(self._file.read, self._read_seconds, "reading the allocation journal")

    async def set_aside(self, stamp: str) -> None:
        """Keep a damaged journal under another name.

        Raises:
            JournalUnavailable: The journal stays in place.
        """
        await self._do(lambda: self._file.set_aside(stamp), self._read_seconds, "setting the damaged journal aside")

    async def read_room(self) -> tuple[int, int | None]:
        """Free bytes and free files of the file system; `None` for a file system that does not count files.

        Raises:
            JournalUnavailable: The file system does not say.
        """
        found = await self._do(self._ask_room, self._read_seconds, "looking how full the state directory is")
        return found.f_bavail * found.f_frsize, found.f_favail if found.f_files else None

    def _ask_room(self) -> os.statvfs_result:
        try:
            return os.statvfs(self._directory)
        except OSError as error:
            raise JournalUnavailable(self.path, describe_os_error(error)) from error

    async def begin(self, content: bytes) -> None:
        """Replace the journal durably, also after failures.

        Raises:
            JournalUnavailable: The journal could not be replaced now.
        """
        if self._failed:
            self._file = self._take_file()
        file = self._file
        self._tally.writes += 1

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
        """Add to the journal, durably where a caller relies on durability.

        The loop stands still within its patience, and for a while not again after a disk has outlasted the patience.

        Raises:
            JournalUnavailable: The content may or may not be in the file; `begin` is needed.
        """
        self._tally.writes += 1
        write = partial(self._file.append, content, durable=durable)
        began = self._now()
        if began < self._slow_until:
            await self._do(write, self._write_seconds, WRITING)
            return
        try:
            await self._do(write, self._write_seconds, WRITING, patience_seconds=PATIENCE_SECONDS)
        finally:
            self._misses = 0 if self._now() - began < PATIENCE_SECONDS else self._misses + 1
            self._slow_until = began + plan_slowness(self._misses) if self._misses else 0.0

    async def aclose(self) -> None:
        """Let go of file, lock and thread, after a call under way; acknowledged content is durable.

        Later calls are refused: the directory may be another agent's by then.
        """
        self._closed = True
        with anyio.CancelScope(shield=True):
            try:
                await self._worker.run(
                    self._file.close, timeout_seconds=self._write_seconds, what="closing the journal"
                )
            except WorkerError as error:
                # The hung call still uses the file, so the file is not closed here but with the process.
                self._log.warning("journal_not_closed", path=self.path, error=str(error))
            self._lock.release()
            self._locked = False
            self._worker.close()

    def _take_file(self) -> JournalFile:
        return JournalFile(self._directory, JOURNAL_NAME, synced=self._tally.syncs.observe)

    def _take_directory(self) -> None:
        """In the thread: make the directory fit, and lock the directory."""
        self._file.prepare()
        if not self._locked:
            try:
                self._lock.acquire()
            except FileNotWritten as error:
                raise JournalUnavailable(self.path, str(error)) from error
            self._locked = True

    async def _do(
        self, call: Callable[[], T], timeout_seconds: float, what: str, *, patience_seconds: float = 0.0
    ) -> T:
        if self._closed:
            raise JournalUnavailable(self.path, "the agent has let go of it")
        try:
            return await self._worker.run(
                call, timeout_seconds=timeout_seconds, what=what, patience_seconds=patience_seconds
            )
        except (WorkerError, JournalUnavailable, StateLocked) as error:
            self._failed = True
            self._tally.failures += 1
            if isinstance(error, WorkerError):
                raise JournalUnavailable(self.path, str(error)) from error
            raise
