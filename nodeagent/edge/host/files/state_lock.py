"""One agent for one state directory: a second agent is refused with the name of the first agent.

Owns a lock file that is created once and never removed: after a removal two processes could lock two files of the
same name. The kernel drops the lock with the process, however the process ends.
"""

import fcntl
import os
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
            FileNotWritten: The lock file cannot be created.
        """
        flags = os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC
        try:
            descriptor = os.open(self._path, flags, 0o600)
        except OSError as error:
            raise FileNotWritten(self._path, "create the lock file", error, replaced=False) from error
        try:
            self._lock(descriptor)
        except BaseException:
            os.close(descriptor)
            raise
        self._descriptor = descriptor

    def release(self) -> None:
        """Release the lock for the next agent; the file stays."""
        if self._descriptor >= 0:
            os.close(self._descriptor)
            self._descriptor = -1

    def __enter__(self) -> Self:
        self.acquire()
        return self

    def __exit__(
        self, exc_type: type[BaseException] | None, exc: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.release()

    def _lock(self, descriptor: int) -> None:
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise StateLocked(self._path, *_parse_holder(os.pread(descriptor, HOLDER_BYTES, 0))) from None
        try:
            os.ftruncate(descriptor, 0)
            os.pwrite(descriptor, f"{os.getpid()} {os.uname().nodename}\n".encode(), 0)
        except OSError as error:
            raise FileNotWritten(self._path, "write who holds it", error, replaced=False) from error


def _parse_holder(content: bytes) -> tuple[int | None, str]:
    """The process, and the pod of the process: in a pod of its own every agent is process 1."""
    pid, _, host = content.decode(errors="replace").partition("\n")[0].partition(" ")
    return (int(pid) if pid.isdecimal() else None), "" if host == os.uname().nodename else host
