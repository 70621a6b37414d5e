"""The host's own paths, wherever this process sees them: an agent in a container has the host's `/` at another place.

Owns the translation there and back. Paths for people and paths in a runtime's configuration are the host's; only the
system calls in here use the other paths. Links are followed as on the host: `/var/run` leads to the host's `/run`.
"""

import errno
import glob
import os
from collections.abc import Iterable, Iterator
from contextlib import suppress
from pathlib import Path, PurePosixPath

from nodeagent.edge.host.driver.roots import follow_in_root
from nodeagent.edge.host.errors import FileNotWritten, FileTooLarge, FileUnreadable
from nodeagent.edge.host.files.atomic_file import READ_LIMIT_BYTES, read_bounded, remove_leftovers, write_atomically

_DIRECTORY_MODE = 0o755
_NOT_OURS = (errno.ENOTEMPTY, errno.EEXIST, errno.ENOENT, errno.ENOTDIR, errno.EBUSY)
"""Reasons to leave a directory: other programs use, have replaced or have removed the directory."""


class HostPaths:
    """Files of the host, by the host's own names."""

    def __init__(self, root: Path = Path("/")) -> None:
        self.root = root
        """The host's `/` as this process sees it."""

    @property
    def is_own(self) -> bool:
        """Whether this process runs in the host's own file system."""
        return self.root == Path("/")

    def here(self, path: str) -> Path:
        """Path in this process of a path of the host.

        Raises:
            FileUnreadable: Symbolic links lead in a circle.
        """
        if self.is_own:
            return Path(path)
        place = follow_in_root(self.root, path)
        if place is None:
            raise FileUnreadable(Path(path), _repeat(errno.ELOOP))
        return place

    def list_matching(self, pattern: str) -> Iterator[str]:
        """The host's paths that match a pattern, sorted; directories before the first wildcard may be links."""
        fixed, rest = _split_pattern(pattern)
        base = self.here(fixed)
        if not rest:
            yield from [fixed] * base.exists()
            return
        # Runtimes are written in Go, and Go's patterns match names with a dot in front.
        for found in sorted(glob.glob(rest, root_dir=base, include_hidden=True)):  # noqa: PTH207  # the path object's own glob follows other rules
            yield str(PurePosixPath(fixed) / found)

    def walk(self, directory: str) -> Iterator[str]:
        """The host's paths of all files below a directory, files and directories in one order of their names."""
        base = self.here(directory)
        found = (Path(place, name).relative_to(base) for place, _, names in os.walk(base) for name in names)
        yield from (str(PurePosixPath(directory) / each) for each in sorted(found, key=lambda each: each.parts))

    def read(self, path: str, *, limit_bytes: int = READ_LIMIT_BYTES) -> bytes | None:
        """A file's content; `None` for a missing file."""
        try:
            return read_bounded(self.here(path), limit_bytes=limit_bytes)
        except FileUnreadable as error:
            if error.is_absent:
                return None
            raise FileUnreadable(Path(path), _repeat(error.errno)) from error
        except FileTooLarge as error:
            raise FileTooLarge(Path(path), limit_bytes) from error

    def is_link(self, path: str) -> bool:
        """Whether the last part of a path is a symbolic link, wherever it leads."""
        return self._find_entry(path).is_symlink()

    def list_missing_directories(self, path: str) -> tuple[str, ...]:
        """The missing directories above a path, the innermost first."""
        return tuple(str(each) for each in PurePosixPath(path).parents if not self.here(str(each)).exists())

    def remove_empty(self, directories: Iterable[str]) -> None:
        """Remove empty directories; other directories stay, and a missing directory is no error."""
        for directory in directories:
            place = self.here(directory)
            # A read-only file system reports a missing directory as read-only.
            if not place.is_dir():
                continue
            try:
                place.rmdir()
            except OSError as error:
                if error.errno not in _NOT_OURS:
                    raise FileNotWritten(Path(directory), "remove it", _repeat(error.errno), replaced=False) from error

    def write(self, path: str, content: bytes | None, *, mode: int = 0o644, follow_link: bool = True) -> None:
        """Replace a file, or remove the file.

        Args:
            path: The file; directories above the file are made.
            content: The whole content; `None` removes the file.
            mode: For a new file.
            follow_link: Whether a symbolic link in the file's place stays and its target is replaced; else the link is
                replaced. Links to directories above the file are followed in any case.

        Raises:
            FileNotWritten: The file is unchanged.
        """
        place, step = self.here(path) if follow_link else self._find_entry(path), "remove it"
        try:
            if content is None:
                remove_leftovers(place)
                # A path below a file is missing, too.
                with suppress(NotADirectoryError):
                    place.unlink(missing_ok=True)
                return
            step = "create its directory"
            place.parent.mkdir(mode=_DIRECTORY_MODE, parents=True, exist_ok=True)
        except OSError as error:
            raise FileNotWritten(Path(path), step, error, replaced=False) from error
        try:
            # In another root the links have been followed already, as on the host.
            write_atomically(place, content, mode=mode, follow_symlink=follow_link and self.is_own, only_writer=True)
        except FileNotWritten as error:
            told = FileNotWritten(Path(path), error.step, _repeat(error.errno), replaced=error.replaced)
            raise told from error

    def _find_entry(self, path: str) -> Path:
        """The path of a directory entry itself, whatever its target."""
        name = PurePosixPath(path)
        return self.here(str(name.parent)) / name.name


def _split_pattern(pattern: str) -> tuple[str, str]:
    """The directory before the first part with a wildcard, and the rest; the whole pattern without a wildcard."""
    parts = PurePosixPath(pattern).parts
    plain = next((number for number, part in enumerate(parts) if glob.has_magic(part)), len(parts))
    return str(PurePosixPath(*parts[:plain])), "/".join(parts[plain:])


def _repeat(number: int | None) -> OSError:
    return OSError(number or 0, os.strerror(number or 0))
