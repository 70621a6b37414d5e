"""What of a cluster is still on the machine: processes, containers, cgroups, mounts, sockets, files.

Looks, and says it in words; removing is `Cluster.down`.
"""

from collections.abc import Iterator
from pathlib import Path

from tests.integration.cluster import cgroups
from tests.integration.cluster.layout import Layout
from tests.integration.cluster.namespace import find_members
from tests.integration.cluster.processes import PROC


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


def name_of(pid: int) -> str:
    """What the process is called, for people."""
    try:
        return (PROC / str(pid) / "comm").read_text().strip()
    except (FileNotFoundError, ProcessLookupError):
        return "gone"
