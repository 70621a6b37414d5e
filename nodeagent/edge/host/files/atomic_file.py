"""Whole files, read within a bound and replaced so that neither a crash nor a power cut leaves half a file.

Owns the order temporary file, fsync, rename, fsync of the directory: leaving out the last step lost the newest
acknowledged content in nine of ten power cuts tried on ext4 and xfs.
Refuses to append, to lock and to know any format: a file's meaning is its owner's business.
All calls block; on the event loop they belong in a worker thread.
"""

import os
import re
import secrets
import stat
from contextlib import suppress
from pathlib import Path

from nodeagent.edge.host.errors import FileNotWritten, FileTooLarge, FileUnreadable

READ_LIMIT_BYTES = 8 * 1024 * 1024
"""Larger than any file the agent writes or expects, small enough to hold in memory."""

_RANDOM = re.compile(r"[0-9a-f]{8}\.tmp")
_LEFTOVER_REST = re.compile(r".*\.[0-9a-f]{8}\.tmp")
_OPEN_NEW = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
# Non-blocking, so that a pipe put in place of a file cannot hang the reader.
_OPEN_READ = os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK


def write_atomically(
    path: Path,
    content: bytes,
    *,
    mode: int = 0o644,
    follow_symlink: bool = False,
    durable: bool = True,
    only_writer: bool = False,
    size_bytes: int = 0,
) -> None:
    """Replace a file durably: on return the new content survives a power cut; until then the old content does.

    Args:
        path: The file; its directory must exist.
        content: The whole content.
        mode: For a new file, whatever the umask; an existing file keeps its mode and its owner.
        follow_symlink: Write the target of a symbolic link, instead of replacing the link.
        durable: Whether the disk is waited for; unnecessary for a file made anew after a power cut.
        only_writer: The file has no other writer; leftovers of killed writers are removed.
        size_bytes: Least length of the file; zeros with a place on the disk follow the content.

    Raises:
        FileNotWritten: Nothing changed, or (`replaced`) the change may be lost in a power cut.
    """
    target = os.path.realpath(path) if follow_symlink else str(path)
    if only_writer:
        remove_leftovers(Path(target))
    writing = _Writing(target, durable=durable)
    try:
        writing.write_temporary(content, mode, size_bytes)
        writing.put_in_place()
        writing.sync_directory()
    except OSError as error:
        raise FileNotWritten(path, writing.step, error, replaced=writing.replaced) from error
    finally:
        writing.close()


class _Writing:
    """One replacement under way: knows its step, and cleans up an unfinished write.

    Names are text: for a small file without waiting, path objects would cost as much as the calls.
    """

    def __init__(self, target: str, *, durable: bool) -> None:
        self._target, self._durable = target, durable
        self._temporary = ""
        self.step = "look at the old file"
        self.replaced = False

    def write_temporary(self, content: bytes, mode: int, size_bytes: int) -> None:
        old = self._read_old_status()
        directory, name = os.path.split(self._target)
        temporary = os.path.join(directory, f".{name}.{secrets.token_hex(4)}.tmp")
        self.step = "create a temporary file beside it"
        descriptor = os.open(temporary, _OPEN_NEW, 0o600)
        self._temporary = temporary
        try:
            self.step = "write the temporary file"
            _write_all(descriptor, content)
            if size_bytes > len(content):
                # Not by writing zeros, at the cost of memory and disk time; a mapping of the file needs the place.
                os.posix_fallocate(descriptor, 0, size_bytes)
            self.step = "set mode and owner"
            _copy_ownership(descriptor, old)
            os.fchmod(descriptor, stat.S_IMODE(old.st_mode) if old else mode)
            self.step = "make the temporary file durable"
            if self._durable:
                os.fsync(descriptor)
        finally:
            os.close(descriptor)

    def put_in_place(self) -> None:
        self.step = "rename the temporary file over it"
        os.rename(self._temporary, self._target)
        self._temporary, self.replaced = "", True

    def sync_directory(self) -> None:
        self.step = "make the directory durable"
        if self._durable:
            sync_directory(Path(self._target).parent)

    def close(self) -> None:
        if self._temporary:
            # The failed write is reported; a leftover is the smaller evil and is removed at the next start.
            with suppress(OSError):
                os.unlink(self._temporary)

    def _read_old_status(self) -> os.stat_result | None:
        try:
            status = os.lstat(self._target)
        except FileNotFoundError:
            return None
        return status if stat.S_ISREG(status.st_mode) else None


def sync_directory(directory: Path) -> None:
    """Make the directory's entries (new, renamed, removed files) durable.

    Raises:
        OSError: The directory cannot be opened, or the disk refused.
    """
    descriptor = os.open(directory, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def remove_stale_temporaries(path: Path, *, is_prefix: bool = False) -> int:
    """Remove the leftovers of interrupted writes of a file; their number.

    Only for the file's one writer, and only while no write is under way.

    Args:
        path: The file.
        is_prefix: The leftovers of all files in the directory whose names begin with the file's name.
    """
    head, removed = f".{path.name}" if is_prefix else f".{path.name}.", 0
    rest = _LEFTOVER_REST if is_prefix else _RANDOM
    try:
        # As text: there may be hundreds of other names, and a container may be waiting.
        for name in os.listdir(path.parent):
            if name.startswith(head) and rest.fullmatch(name, len(head)):
                (path.parent / name).unlink(missing_ok=True)
                removed += 1
    except OSError as error:
        raise FileUnreadable(path.parent, error) from error
    return removed


def remove_leftovers(path: Path) -> None:
    """Remove the leftovers of interrupted writes before a new write; a stubborn leftover is the smaller evil."""
    with suppress(FileUnreadable):
        remove_stale_temporaries(path)


def read_bounded(path: Path, *, limit_bytes: int = READ_LIMIT_BYTES, follow_symlink: bool = True) -> bytes:
    """Read a whole file, but never more than the limit.

    Raises:
        FileUnreadable: The file is missing, is of another kind, or may not be read.
        FileTooLarge: The file has more than `limit_bytes`.
    """
    try:
        descriptor = os.open(path, _OPEN_READ | (0 if follow_symlink else os.O_NOFOLLOW))
        try:
            content = _read_all(descriptor, limit_bytes + 1)
        finally:
            os.close(descriptor)
    except OSError as error:
        raise FileUnreadable(path, error) from error
    if len(content) > limit_bytes:
        raise FileTooLarge(path, limit_bytes)
    return content


def identify(path: Path | str, *, follow_symlink: bool = True) -> tuple[int, ...]:
    """What stays the same for as long as content, owner and mode of the file do; empty without a file."""
    try:
        status = os.stat(path, follow_symlinks=follow_symlink)  # done all the time, at less cost than by a path
    except (OSError, ValueError):
        return ()
    return (status.st_dev, status.st_ino, status.st_rdev, status.st_size, status.st_mtime_ns, status.st_ctime_ns)


def _write_all(descriptor: int, content: bytes) -> None:
    rest = memoryview(content)
    while rest:
        rest = rest[os.write(descriptor, rest) :]


def _read_all(descriptor: int, limit_bytes: int) -> bytes:
    chunks: list[bytes] = []
    while limit_bytes > 0 and (chunk := os.read(descriptor, min(limit_bytes, 1 << 20))):
        chunks.append(chunk)
        limit_bytes -= len(chunk)
    return b"".join(chunks)


def _copy_ownership(descriptor: int, old: os.stat_result | None) -> None:
    if old is None:
        return
    new = os.fstat(descriptor)
    if (new.st_uid, new.st_gid) != (old.st_uid, old.st_gid):
        os.fchown(descriptor, old.st_uid, old.st_gid)
