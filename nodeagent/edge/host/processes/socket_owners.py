"""The user at the other end of a connection on this machine, as the kernel vouches.

While no agent runs, any user can take a path in a shared directory, or a port above 1023: before an answer is believed,
the answering user must be known.
"""

import os
import socket
import struct
from collections.abc import Iterable
from pathlib import Path

from nodeagent.edge.host.files.pseudo_file import read_attribute

_CREDENTIALS = struct.Struct("3i")
_LISTENING = "0A"
_TABLES = ("net/tcp", "net/tcp6")
_PROBE_SECONDS = 1.0
_TABLE_BYTES_MAX = 16 * 1024 * 1024


def is_trusted(uid: int) -> bool:
    """Whether a user is root or the agent's own user."""
    return uid in {0, os.geteuid()}


def read_peer_user(connected: socket.socket) -> int:
    """The user that listens at the other end of a unix socket."""
    packed = connected.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, _CREDENTIALS.size)
    uid: int = _CREDENTIALS.unpack(packed)[1]
    return uid


def can_connect(path: Path) -> bool:
    """Whether a process listens on a unix socket."""
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as probe:
        probe.settimeout(_PROBE_SECONDS)
        try:
            probe.connect(os.fspath(path))
        except OSError:
            return False
    return True


def read_port_users(port: int, proc: Path = Path("/proc/self")) -> frozenset[int]:
    """The users that listen on a TCP port of this machine, on any address; empty without listeners."""
    tables = (read_attribute(proc / name, limit_bytes=_TABLE_BYTES_MAX) for name in _TABLES)
    return find_port_users(port, (line for table in tables for line in table.splitlines()))


def find_port_users(port: int, lines: Iterable[str]) -> frozenset[int]:
    """The owners of listening sockets of a port, from the lines of /proc/net/tcp."""
    wanted = f":{port:04X}"
    rows = (line.split() for line in lines)
    return frozenset(int(row[7]) for row in rows if len(row) > 7 and row[3] == _LISTENING and row[1].endswith(wanted))
