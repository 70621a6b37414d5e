"""One agent for one state directory: a second agent is refused with the name of the first agent, or waits.

Owns a lock file that is created once and never removed: after a removal two processes could lock two files of the
same name. The kernel drops the lock with the process, however the process ends.
"""

import asyncio
import contextlib
import fcntl
import os
import threading
from pathlib import Path
from types import TracebackType
from typing import Self

from nodeagent.edge.host.errors import FileNotWritten, StateLocked

HOLDER_BYTES = 300
"""A process id and a host name of at most 253 bytes."""


class StateLock:
    """Holds the lock from `acquire` to `release`, or for the life of a `with` block."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._descriptor = -1

    def acquire(self) -> None:
        """Take the lock at once or not at all.

        Raises:
            StateLocked: Another process holds the lock.
            FileNotWritten: The lock file cannot be created or locked.
        """
        self._descriptor = self._open_locked(fcntl.LOCK_EX | fcntl.LOCK_NB)

    async def acquire_when_free(self) -> None:
        """Wait for the lock without a limit; a cancelled wait takes no lock.

        Raises:
            FileNotWritten: The lock file cannot be created or locked.
        """
        held: asyncio.Future[int] = asyncio.get_running_loop().create_future()
        # A blocked call hears of a killed holder, too; a daemon, because the process must be able to end meanwhile.
        threading.Thread(target=self._wait_free, args=(held,), name="state lock", daemon=True).start()
        self._descriptor = await held

    def _wait_free(self, held: asyncio.Future[int]) -> None:
        """In a thread of its own: take the lock, and hand the lock to the waiter if there still is one."""
        descriptor, failure = -1, None
        try:
            descriptor = self._open_locked(fcntl.LOCK_EX)
        except FileNotWritten as error:
            failure = error
        with contextlib.suppress(RuntimeError):  # the loop is closed, so nobody waits
            held.get_loop().call_soon_threadsafe(_settle, held, descriptor, failure)
            return
        _close(descriptor)

    def _open_locked(self, operation: int) -> int:
        flags = os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC
        try:
            descriptor = os.open(self._path, flags, 0o600)
        except OSError as error:
            raise FileNotWritten(self._path, "create the lock file", error, replaced=False) from error
        try:
            self._lock(descriptor, operation)
        except BaseException:
            os.close(descriptor)
            raise
        return descriptor

    def release(self) -> None:
        """Release the lock for the next agent; the file stays."""
        _close(self._descriptor)
        self._descriptor = -1

    def __enter__(self) -> Self:
        self.acquire()
        return self

    def __exit__(
        self, exc_type: type[BaseException] | None, exc: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.release()

    def _lock(self, descriptor: int, operation: int) -> None:
        try:
            fcntl.flock(descriptor, operation)
        except BlockingIOError:
            raise StateLocked(self._path, *_parse_holder(os.pread(descriptor, HOLDER_BYTES, 0))) from None
        except OSError as error:
            raise FileNotWritten(self._path, "lock the lock file", error, replaced=False) from error
        try:
            os.ftruncate(descriptor, 0)
            os.pwrite(descriptor, f"{os.getpid()} {os.uname().nodename}\n".encode(), 0)
        except OSError as error:
            raise FileNotWritten(self._path, "write who holds it", error, replaced=False) from error


def _settle(held: asyncio.Future[int], descriptor: int, failure: FileNotWritten | None) -> None:
    if held.done():  # the wait was cancelled
        _close(descriptor)
    elif failure is not None:
        held.set_exception(failure)
    else:
        held.set_result(descriptor)


def _close(descriptor: int) -> None:
    if descriptor >= 0:
        os.close(descriptor)


def _parse_holder(content: bytes) -> tuple[int | None, str]:
    """The process, and the pod of the process: in a pod of its own every agent is process 1."""
    pid, _, host = content.decode(errors="replace").partition("\n")[0].partition(" ")
    return (int(pid) if pid.isdecimal() else None), "" if host == os.uname().nodename else host
