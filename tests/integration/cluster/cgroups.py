"""The one cgroup below which all pods of the cluster run, in every hierarchy of the machine.

Owns its creation and removal; what is inside belongs to the kubelet and runc until `down`. Knows version 1 and 2.
"""

import contextlib
import time
from collections.abc import Iterable, Iterator
from pathlib import Path

from tests.integration.cluster.processes import POLL_SECONDS, ProcessId

CONTROLLERS = ("cpu", "cpuset", "memory", "pids", "io", "hugetlb")  # of version 2, as far as the machine has them


def find_hierarchies(mountinfo: str) -> tuple[Path, ...]:
    """The mount points of all cgroup file systems, from the text of /proc/self/mountinfo."""
    fields = (line.partition(" - ") for line in mountinfo.splitlines())
    mounts = ((left.split()[4], right.split()[0]) for left, _, right in fields)
    return tuple(Path(point) for point, kind in mounts if kind in {"cgroup", "cgroup2"})


def read_hierarchies() -> tuple[Path, ...]:
    return find_hierarchies(Path("/proc/self/mountinfo").read_text())


def is_version_1(root: Path = Path("/sys/fs/cgroup")) -> bool:
    """Whether a kubelet finds cgroups of version 1 here: the root of version 2 hands on controllers."""
    return not (root / "cgroup.controllers").exists()


def create(name: str, hierarchies: Iterable[Path]) -> None:
    """Make the cgroup everywhere, with every controller it may hand on."""
    for hierarchy in hierarchies:
        folder = hierarchy / name.strip("/")
        folder.mkdir(exist_ok=True)
        if (hierarchy / "cgroup.controllers").exists():
            _hand_on_controllers(hierarchy)
            _hand_on_controllers(folder)
        if (folder / "cpuset.cpus").exists() and not (hierarchy / "cgroup.controllers").exists():
            _copy_cpuset(hierarchy, folder)


def find_processes(name: str, hierarchies: Iterable[Path]) -> tuple[ProcessId, ...]:
    """Every process in the cgroup or below it: the containers."""
    numbers = {
        int(line) for folder in find_folders(name, hierarchies) for line in _read(folder / "cgroup.procs").split()
    }
    return tuple(filter(None, map(ProcessId.of, sorted(numbers))))


def remove(name: str, hierarchies: Iterable[Path], *, timeout_seconds: float) -> tuple[Path, ...]:
    """Remove the cgroup, deepest first; return what the kernel would not let go in time."""
    deadline = time.monotonic() + timeout_seconds
    places = tuple(hierarchies)
    while remaining := tuple(find_folders(name, places)):
        for folder in remaining:
            with contextlib.suppress(OSError):  # busy: a killed process is still on its way out; we come again
                folder.rmdir()
        if time.monotonic() >= deadline:
            return tuple(find_folders(name, places))
        time.sleep(POLL_SECONDS)
    return ()


def find_folders(name: str, hierarchies: Iterable[Path]) -> Iterator[Path]:
    for hierarchy in hierarchies:
        top = hierarchy / name.strip("/")
        if top.is_dir():
            yield from sorted((path for path in top.rglob("*") if path.is_dir()), key=lambda path: -len(path.parts))
            yield top


def _hand_on_controllers(folder: Path) -> None:
    available = _read(folder / "cgroup.controllers").split()
    for controller in (each for each in CONTROLLERS if each in available):
        with contextlib.suppress(OSError):  # already on, or in use by a process here; the kubelet names what it misses
            (folder / "cgroup.subtree_control").write_text(f"+{controller}")


def _copy_cpuset(source: Path, folder: Path) -> None:
    """In version 1 a new cpuset is empty, and nothing can run in it."""
    for key in ("cpuset.cpus", "cpuset.mems"):
        (folder / key).write_text(_read(source / key))


def _read(path: Path) -> str:
    try:
        return path.read_text()
    except FileNotFoundError:
        return ""
