"""Whose process is at the other end of a connection on this machine, as the kernel vouches for it.

A path in a shared directory, and a port above 1023, are anybody's to take while no agent runs: before an answer is
believed it must be known who gives it.
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
    """Root may be believed, and oneself."""
    return uid in {0, os.geteuid()}


def read_peer_user(connected: socket.socket) -> int:
    """Who listens at the other end of a unix socket."""
    packed = connected.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, _CREDENTIALS.size)
    uid: int = _CREDENTIALS.unpack(packed)[1]
    return uid


def can_connect(path: Path) -> bool:
    """Whether somebody listens on a unix socket."""
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as probe:
        probe.settimeout(_PROBE_SECONDS)
        try:
            probe.connect(os.fspath(path))
        except OSError:
            return False
    return True


def read_port_users(port: int, proc: Path = Path("/proc/self")) -> frozenset[int]:
    """Who listens on a TCP port of this machine, on whatever address; none where nobody does."""
    tables = (read_attribute(proc / name, limit_bytes=_TABLE_BYTES_MAX) for name in _TABLES)
    return find_port_users(port, (line for table in tables for line in table.splitlines()))


def find_port_users(port: int, lines: Iterable[str]) -> frozenset[int]:
    """The owners of listening sockets of this port, from the lines of /proc/net/tcp."""
    wanted = f":{port:04X}"
    rows = (line.split() for line in lines)
    return frozenset(int(row[7]) for row in rows if len(row) > 7 and row[3] == _LISTENING and row[1].endswith(wanted))
