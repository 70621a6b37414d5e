"""Listening unix sockets closed to other users from the first visible moment."""

import errno
import os
import socket
from pathlib import Path
from typing import Final, NamedTuple

from nodeagent.edge.grpc.errors import SocketUnavailable

LONGEST_PATH_BYTES: Final = 107
SOCKET_MODE: Final = 0o600


class FileIdentity(NamedTuple):
    """Distinguishes a file from a replacement; inode numbers alone are soon used again."""

    device: int
    inode: int
    changed_nanoseconds: int


def identify_file(path: Path) -> FileIdentity | None:
    """The identity of the file now at the path; `None` without a file."""
    try:
        found = path.lstat()
    except OSError:
        return None
    return FileIdentity(found.st_dev, found.st_ino, found.st_ctime_ns)


def is_answering(path: Path) -> bool:
    """Whether a process listens at the path."""
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM | socket.SOCK_NONBLOCK) as asking:
        return asking.connect_ex(os.fsencode(path)) in {0, errno.EAGAIN}


def bind_unix_socket(path: Path) -> socket.socket:
    """Listen at `path`, mode 0600; an existing file is replaced.

    The socket gets the mode under a hidden name and is then renamed: at no moment can a stranger connect, and a watcher
    of the directory sees one complete file appear.

    Raises:
        SocketUnavailable: the path is too long, or the directory is not writable.
    """
    hidden = path.with_name(f".{path.name}")
    excess = len(os.fsencode(hidden)) - LONGEST_PATH_BYTES
    if excess > 0:
        raise SocketUnavailable(str(path), f"the path is {excess} bytes too long for a unix socket, use a shorter one")
    listening = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM | socket.SOCK_NONBLOCK)
    try:
        hidden.unlink(missing_ok=True)
        listening.bind(str(hidden))
        hidden.chmod(SOCKET_MODE)
        listening.listen(100)
        hidden.rename(path)
    except OSError as error:
        listening.close()
        raise SocketUnavailable(str(path), error.strerror or str(error)) from error
    return listening
