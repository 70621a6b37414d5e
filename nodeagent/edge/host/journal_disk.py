"""The allocation journal as the event loop uses it: file work in a thread of its own, bounded in time, under a lock.

Owns the lock of the state directory and the one file object in use.
Refuses to trust a file after a failure: the next `begin` takes a fresh one, so that a call that still hangs in the old
one cannot write into the new.

A durable append takes about 0.1 ms on a good disk, for which the event loop stands still: to go on meanwhile would
double that. On a bad disk it takes seconds or never returns; so the file work stays in its thread, the loop stands
still no longer than its patience, and for a while not at all once the patience was not enough
(docs/adr/0006-standing-still-for-a-fast-disk.md).
"""

import time
from collections.abc import Awaitable, Callable
from functools import partial
from pathlib import Path
from typing import Final, TypeVar

import anyio

from nodeagent.edge.host.errors import FileNotWritten, StateLocked
from nodeagent.edge.host.journal_file import JournalFile, JournalFiles
from nodeagent.edge.host.state_lock import StateLock
from nodeagent.kernel.durations import Durations
from nodeagent.kernel.errors import WorkerError
from nodeagent.kernel.log import get_logger
from nodeagent.kernel.worker_thread import Begun, Interlude, WorkerThread
from nodeagent.model.errors import JournalUnavailable
from nodeagent.model.hearing import Hearing

T = TypeVar("T")

JOURNAL_NAME: Final = "allocations.journal"
LOCK_NAME: Final = "state.lock"
READ_SECONDS: Final = 10.0
WRITE_SECONDS: Final = 2.0
"""How long a pod's admission may wait for the disk; the kubelet itself would wait for ever."""
PATIENCE_SECONDS: Final = 0.002
"""How long the event loop may stand still for one append; its lag may be 5 ms."""
SHORTEST_SLOWNESS_SECONDS: Final = 0.1
LONGEST_SLOWNESS_SECONDS: Final = 30.0


def plan_slowness(misses: int) -> float:
    """How long the disk is taken for slow after so many appends in a row that outlasted the patience."""
    return min(LONGEST_SLOWNESS_SECONDS, SHORTEST_SLOWNESS_SECONDS * 2.0 ** min(misses - 1, 16))


class JournalTally:
    """What was written since the process began; outlives the disk that counts into it."""

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
        self._misses, self._slow_until = 0, 0.0
        self._hearing_failures = Hearing(Exception, self._hear)

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

    def append(
        self, content: bytes, *, durable: bool = True, meanwhile: Callable[[], None] | None = None
    ) -> Awaitable[None] | None:
        """Add to the journal, durably where somebody relies on it.

        `meanwhile` is called at most once, while the loop stands still for the disk; it must not raise.

        Returns:
            `None` when that is done, else what must be awaited for it.

        Raises:
            JournalUnavailable: it may or may not be there; `begin` is needed.
        """
        began, patience = self._find_patience()
        self._tally.writes += 1
        interlude = Interlude(meanwhile) if durable and meanwhile is not None else None
        syncing = interlude.begin if interlude is not None else None
        with self._hearing_failures:
            pending = self._worker.run_promptly(
                partial(self._file.append, content, durable=durable, syncing=syncing),
                patience_seconds=patience,
                timeout_seconds=self._write_seconds,
                what="writing the allocation journal",
                interlude=interlude,
            )
        return self._learn_pace(pending, began, patience)

    def begin_append(self, content: bytes) -> Callable[[], Awaitable[None] | None]:
        """Add to the journal durably before anybody relies on it.

        Returns:
            What to call, once and before anything else is done here, for what `append` would have returned or raised.

        Raises:
            JournalUnavailable: it may or may not be there; `begin` is needed.
        """
        self._tally.writes += 1
        with self._hearing_failures:
            begun = self._worker.begin(
                partial(self._file.append, content),
                timeout_seconds=self._write_seconds,
                what="writing the allocation journal",
            )
        return partial(self._collect, begun)

    def _collect(self, begun: Begun[None]) -> Awaitable[None] | None:
        began, patience = self._find_patience()
        with self._hearing_failures:
            pending = begun.collect(patience)
        return self._learn_pace(pending, began, patience)

    def _find_patience(self) -> tuple[float, float]:
        """The time, and how long the loop may stand still for the disk now."""
        now = self._now()
        return now, PATIENCE_SECONDS if now >= self._slow_until else 0.0

    def _learn_pace(self, pending: Awaitable[None] | None, began: float, patience: float) -> Awaitable[None] | None:
        """A disk that outlasted the patience is not waited for again soon."""
        if patience:
            self._misses = 0 if pending is None else self._misses + 1
            self._slow_until = began + plan_slowness(self._misses) if self._misses else 0.0
        return pending if pending is None else self._await(pending)

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

    def _take_file(self) -> JournalFile:
        return JournalFile(self._directory, JOURNAL_NAME, synced=self._tally.syncs.observe)

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
        return await self._await(self._worker.run(call, timeout_seconds=timeout_seconds, what=what))

    async def _await(self, pending: Awaitable[T]) -> T:
        with self._hearing_failures:
            return await pending

    def _hear(self, error: Exception) -> None:
        if isinstance(error, (WorkerError, JournalUnavailable, StateLocked)):
            self._failed = True
            self._tally.failures += 1
        if isinstance(error, WorkerError):
            raise JournalUnavailable(self.path, str(error)) from error
