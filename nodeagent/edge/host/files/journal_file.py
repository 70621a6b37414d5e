"""The file of an append-only journal: begun whole, then appended to, durable before the call returns.

Owns the directory's files of one name: the journal, the previous journal, damaged journals set aside, leftovers of
interrupted writes. Refuses to know the meaning of the bytes, and to go on after a failed write: only `begin` helps
then, because a failed fsync may have dropped unwritten pages, and a second fsync would succeed without them.
All calls block; on the event loop they belong in a worker thread.
"""

import os
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Final, NamedTuple

from nodeagent.edge.host.errors import (
    FileNotWritten,
    FileTooLarge,
    FileUnreadable,
    describe_os_error,
    suggest_remedy,
)
from nodeagent.edge.host.files.atomic_file import (
    read_bounded,
    remove_stale_temporaries,
    sync_directory,
    write_atomically,
)
from nodeagent.model.errors import JournalUnavailable

_READ_LIMIT_BYTES: Final = 64 * 1024 * 1024
_READ_ATTEMPTS: Final = 3
_SET_ASIDE_KEPT: Final = 3
_OPEN_APPEND: Final = os.O_WRONLY | os.O_APPEND | os.O_NOFOLLOW | os.O_CLOEXEC


class JournalFiles(NamedTuple):
    """The files at the start; `None` for a missing file, empty for an unreadable file."""

    current: bytes | None
    previous: bytes | None
    problem: str = ""


class JournalFile:
    """One journal; for a single writer that holds the lock of the directory."""

    def __init__(self, directory: Path, name: str, *, synced: Callable[[float], None] | None = None) -> None:
        """`synced` is called with the disk's seconds for each sync of an append, in the appending thread."""
        self.path, self._synced = directory / name, synced
        self._previous = directory / f"{name}.prev"
        self._descriptor = -1
        self._expected: tuple[int, int, int] | None = None

    def __del__(self) -> None:
        """Close the file: a call that hung may hold the last reference, and returns without a caller."""
        self.close()

    @property
    def size_bytes(self) -> int:
        """The journal's size; 0 before `begin`."""
        return self._expected[2] if self._expected is not None else 0

    def prepare(self) -> None:
        """Make the directory and remove leftovers of interrupted writes.

        Raises:
            JournalUnavailable: The directory cannot be made, or belongs to another user.
        """
        directory = self.path.parent
        try:
            directory.mkdir(mode=0o700, parents=True, exist_ok=True)
            owner = directory.stat().st_uid
            if owner == os.geteuid():
                remove_stale_temporaries(self.path)
        except OSError as error:
            raise self._unavailable(error) from error
        except FileUnreadable as error:
            raise JournalUnavailable(str(self.path), str(error)) from error
        if owner != os.geteuid():
            reason = f"{directory} belongs to user {owner}: give it to user {os.geteuid()} with chown"
            raise JournalUnavailable(str(self.path), reason)

    def read(self) -> JournalFiles:
        """The last writer's files; an unreadable file differs from a missing file."""
        problems: list[str] = []
        current, previous = (_read(path, problems) for path in (self.path, self._previous))
        return JournalFiles(current, previous, "; ".join(problems))

    def set_aside(self, stamp: str) -> None:
        """Keep a damaged journal under another name, and no more than a few such files.

        Raises:
            JournalUnavailable: The journal stays in place.
        """
        try:
            self.path.rename(self.path.with_name(f"{self.path.name}.bad.{stamp}"))
            for old in sorted(self.path.parent.glob(f"{self.path.name}.bad.*"))[:-_SET_ASIDE_KEPT]:
                old.unlink()
            sync_directory(self.path.parent)
        except OSError as error:
            raise self._unavailable(error) from error

    def begin(self, content: bytes) -> None:
        """Replace the journal by a new journal with this content, and keep the old one as the previous journal.

        Raises:
            JournalUnavailable: The old journal is still the journal, or the new one may not survive a power cut.
        """
        self.close()
        try:
            self._keep_previous()
            write_atomically(self.path, content, mode=0o600)
            self._descriptor = os.open(self.path, _OPEN_APPEND)
            self._expect(len(content))
        except OSError as error:
            raise self._unavailable(error) from error
        except FileNotWritten as error:
            raise JournalUnavailable(str(self.path), str(error)) from error

    def append(self, content: bytes, *, durable: bool = True) -> None:
        """Add to the end; content not yet durable survives a kill, and a power cut after a later durable append.

        Raises:
            JournalUnavailable: The content may or may not be in the file; the journal must be begun anew.
        """
        known = self._expected
        try:
            foreign = known is None or self._identify() != known
            if known is not None and not foreign:
                self._write(content)
                if durable:
                    self._sync()
                device, inode, size_bytes = known
                self._expected = device, inode, size_bytes + len(content)
        except OSError as error:
            self.close()
            raise self._unavailable(error) from error
        if foreign:
            self.close()
            raise JournalUnavailable(str(self.path), "somebody else has changed it: it is begun anew")

    def close(self) -> None:
        """Let go of the file; acknowledged content is durable already."""
        self._expected = None
        if self._descriptor >= 0:
            descriptor, self._descriptor = self._descriptor, -1
            # The outcome does not matter: all content was synced, or has been reported as failed.
            with suppress(OSError):
                os.close(descriptor)

    def _sync(self) -> None:
        began = time.perf_counter()
        os.fdatasync(self._descriptor)
        if self._synced is not None:
            self._synced(time.perf_counter() - began)

    def _write(self, content: bytes) -> None:
        rest = memoryview(content)
        while rest:
            rest = rest[os.write(self._descriptor, rest) :]

    def _keep_previous(self) -> None:
        """Give the present file a second name, so that at every moment the journal or the previous journal exists."""
        spare = self._previous.with_name(f".{self._previous.name}.new")
        spare.unlink(missing_ok=True)
        try:
            spare.hardlink_to(self.path)
        except FileNotFoundError:
            return
        spare.rename(self._previous)

    def _expect(self, size_bytes: int) -> None:
        status = os.fstat(self._descriptor)
        self._expected = status.st_dev, status.st_ino, size_bytes

    def _identify(self) -> tuple[int, int, int]:
        """Identity of the file at the journal's path, so that no append goes to a removed or replaced file."""
        status = self.path.lstat()
        return status.st_dev, status.st_ino, status.st_size

    def _unavailable(self, error: OSError) -> JournalUnavailable:
        return JournalUnavailable(str(self.path), f"{describe_os_error(error)}: {suggest_remedy(error, self.path)}")


def _read(path: Path, problems: list[str]) -> bytes | None:
    """The content; a file that could not be read once may be whole, and is given up only after some attempts."""
    for attempt in range(1, _READ_ATTEMPTS + 1):
        try:
            return read_bounded(path, limit_bytes=_READ_LIMIT_BYTES, follow_symlink=False)
        except FileUnreadable as error:
            if error.is_absent:
                return None
            problem = str(error)
        except FileTooLarge as error:
            problem = str(error)
        if attempt == _READ_ATTEMPTS:
            problems.append(problem)
    return b""
