"""What of a cluster is still on the machine: processes, containers, cgroups, mounts, sockets, files.

Looks, and says it in words; removing is `Cluster.down`.
"""

import contextlib
import ipaddress
import sys
from collections.abc import Iterable, Iterator
from pathlib import Path

from tests.integration.cluster import cgroups
from tests.integration.cluster.layout import Layout
from tests.integration.cluster.namespace import find_members
from tests.integration.cluster.processes import PROC, ProcessId

LISTENING = "0A"


def find_leftovers(layout: Layout) -> tuple[str, ...]:
    """One line for each thing of this cluster that exists; empty after a clean `down`."""
    hierarchies = cgroups.read_hierarchies()
    return (
        *(f"process {each.pid} ({name_of(each.pid)})" for each in find_members(layout)),
        *(f"container process {each.pid}" for each in cgroups.find_processes(layout.cgroup_root, hierarchies)),
        *(f"cgroup {each}" for each in cgroups.find_folders(layout.cgroup_root, hierarchies)),
        *(f"mount {each}" for each in find_mounts(layout.root, (PROC / "self/mountinfo").read_text())),
        *(f"socket {each}" for each in find_sockets(layout.root, (PROC / "net/unix").read_text())),
        *((f"directory {layout.root}",) if layout.root.exists() else ()),
    )


def find_mounts(root: Path, mountinfo: str) -> Iterator[str]:
    """Mount points at or below `root`."""
    points = (line.split()[4] for line in mountinfo.splitlines())
    return (point for point in points if Path(point).is_relative_to(root))


def find_sockets(root: Path, net_unix: str) -> Iterator[str]:
    """Unix sockets bound at or below `root`."""
    names = (line.split(maxsplit=7)[7] for line in net_unix.splitlines()[1:] if len(line.split(maxsplit=7)) == 8)
    return (name for name in names if Path(name).is_relative_to(root))


def find_listeners(processes: Iterable[ProcessId]) -> frozenset[tuple[str, int]]:
    """Address and port of every TCP socket on which one of these processes listens."""
    inodes = {inode for each in processes for inode in _socket_inodes(each.pid)}
    text = "\n".join((PROC / "net" / table).read_text() for table in ("tcp", "tcp6"))
    return frozenset(address for inode, address in parse_listeners(text) if inode in inodes)


def parse_listeners(net_tcp: str) -> Iterator[tuple[str, tuple[str, int]]]:
    """Socket inode and local address of each listening line of /proc/net/tcp or tcp6."""
    for fields in map(str.split, net_tcp.splitlines()):
        if len(fields) > 9 and fields[3] == LISTENING:
            host, _, port = fields[1].partition(":")
            words = (int(host[at : at + 8], 16).to_bytes(4, sys.byteorder) for at in range(0, len(host), 8))
            yield fields[9], (str(ipaddress.ip_address(b"".join(words))), int(port, 16))


def _socket_inodes(pid: int) -> Iterator[str]:
    with contextlib.suppress(FileNotFoundError, ProcessLookupError):  # it ended meanwhile
        for descriptor in (PROC / str(pid) / "fd").iterdir():
            with contextlib.suppress(FileNotFoundError):  # closed meanwhile
                if (target := str(descriptor.readlink())).startswith("socket:["):
                    yield target.removeprefix("socket:[").rstrip("]")


def name_of(pid: int) -> str:
    try:
        return (PROC / str(pid) / "comm").read_text().strip()
    except (FileNotFoundError, ProcessLookupError):
        return "gone"
