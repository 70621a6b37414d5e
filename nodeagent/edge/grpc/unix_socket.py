"""Listening unix sockets that nobody else can use, from the moment that they can be seen."""

import os
import socket
from pathlib import Path
from typing import Final, NamedTuple

from nodeagent.edge.grpc.errors import SocketUnavailable

LONGEST_PATH_BYTES: Final = 107
SOCKET_MODE: Final = 0o600


class FileIdentity(NamedTuple):
    """Tells a file from another one that has taken its place; inode numbers alone are soon used again."""

    device: int
    inode: int
    changed_nanoseconds: int


def identify_file(path: Path) -> FileIdentity | None:
    """Which file is at this path now, `None` for none."""
    try:
        found = path.lstat()
    except OSError:
        return None
    return FileIdentity(found.st_dev, found.st_ino, found.st_ctime_ns)


def bind_unix_socket(path: Path) -> socket.socket:
    """Listen at `path`, mode 0600; a file that is there already is replaced.

    The socket gets its mode under a hidden name and is then renamed: at no moment can a stranger connect,
    and whoever watches the directory sees one complete file appear.

    Raises:
        SocketUnavailable: the path is too long, or the directory does not let us.
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
