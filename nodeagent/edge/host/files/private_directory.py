"""A private directory in a place where other users may write, such as the temporary directory.

Another user may be first at a predictable name: the directory there is opened without following a link and examined
through the open descriptor, and a directory that another user owns or may write is refused, never mended.
"""

import os
import pwd
import stat
from contextlib import suppress
from pathlib import Path

from nodeagent.edge.host.errors import DirectoryNotPrivate

MODE = 0o700
_OPEN = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
_OTHERS_WRITE = stat.S_IWGRP | stat.S_IWOTH


def make_private(path: Path) -> int:
    """Make a missing directory; the descriptor of the open directory.

    Raises:
        DirectoryNotPrivate: The directory is not this user's alone, or other users may replace the directory.
        OSError: The directory cannot be made.
    """
    _check_surroundings(path.parent)
    with suppress(FileExistsError):
        path.mkdir(mode=MODE)
    return open_private(path)


def open_private(path: Path, *, beside: int | None = None) -> int:
    """The directory, open, if private to this user; `beside` is the parent directory, if open.

    Raises:
        DirectoryNotPrivate: The directory is not private.
        FileNotFoundError: The directory is missing.
    """
    try:
        descriptor = os.open(path if beside is None else path.name, _OPEN, dir_fd=beside)
    except FileNotFoundError:
        raise
    except OSError as error:
        raise DirectoryNotPrivate(path, _describe_in_the_way(path, error)) from error
    problem = find_problem(os.fstat(descriptor), os.geteuid())
    if problem:
        os.close(descriptor)
        raise DirectoryNotPrivate(path, problem)
    return descriptor


def find_problem(status: os.stat_result, user: int) -> str:
    """Why a directory is not private to this user; empty for a private directory."""
    if status.st_uid != user:
        return f"it belongs to {name_user(status.st_uid)}, not to {name_user(user)}"
    if status.st_mode & ~MODE & 0o777:
        return f"its mode is {stat.S_IMODE(status.st_mode):04o}, and others may be let in"
    return ""


def name_user(uid: int) -> str:
    """A user as people know them."""
    try:
        return f"user {pwd.getpwuid(uid).pw_name} ({uid})"
    except KeyError:
        return f"user {uid}"


def _check_surroundings(directory: Path) -> None:
    """Refuse a parent directory where other users could replace our entry later: writable, without the sticky bit."""
    status = directory.stat()
    if status.st_mode & _OTHERS_WRITE and not status.st_mode & stat.S_ISVTX:
        mode = stat.S_IMODE(status.st_mode)
        problem = f"its mode is {mode:04o}, and others may replace what is in it"
        raise DirectoryNotPrivate(directory, problem, "`chmod go-w` it")


def _describe_in_the_way(path: Path, error: OSError) -> str:
    try:
        status = path.lstat()
    except OSError:
        return (error.strerror or str(error)).lower()
    kind = "a symbolic link" if stat.S_ISLNK(status.st_mode) else "no directory"
    if stat.S_ISDIR(status.st_mode):
        kind = f"a directory that cannot be opened ({(error.strerror or str(error)).lower()})"
    return f"it is {kind}, of {name_user(status.st_uid)}"
