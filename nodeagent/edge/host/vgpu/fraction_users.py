"""The folders of limits that running containers have, by the mount tables of their processes.

Owns the reading of mount tables: the kernel knows also folders that journal and container runtime have forgotten.
Refuses to count a folder as unused because a process could not be examined.
"""

from collections.abc import Collection, Iterator
from pathlib import Path
from typing import Final

from nodeagent.edge.host.errors import FileUnreadable
from nodeagent.edge.host.processes.process_places import require_processes
from nodeagent.edge.host.vgpu.fraction_folders import LIMITS

_ROOT_FIELD: Final = 3
"""Field of a line in a mount table: the mounted path, from the root of its own file system on."""


def find_mounted(names: Collection[str], proc_root: Path) -> frozenset[str]:
    """The folders whose limits a process has mounted.

    Raises:
        FileUnreadable: The mounts of a process are invisible, or /proc shows no process at all.
    """
    found, seen = set[str](), set[str]()
    for process in require_processes(proc_root):
        namespace = _read_namespace(process)
        if namespace and namespace in seen:
            continue
        seen.add(namespace)
        found.update(_list_folders(process / "mountinfo"))
    return frozenset(found.intersection(names))


def _read_namespace(process: Path) -> str:
    """The mount namespace, read once for all processes in the namespace; empty where this user may not know."""
    try:
        return str((process / "ns/mnt").readlink())
    except OSError:
        return ""


def _list_folders(table: Path) -> Iterator[str]:
    try:
        lines = table.read_text(encoding="utf-8", errors="replace").splitlines()
    except PermissionError as error:
        raise FileUnreadable(table, error) from error
    except OSError:  # the process has ended meanwhile, or is a zombie
        return
    for line in lines:
        fields = line.split(" ")
        # The kernel adds this suffix to the name of a removed file.
        mounted = Path(fields[_ROOT_FIELD].removesuffix("//deleted") if len(fields) > _ROOT_FIELD else "")
        if mounted.name == LIMITS:
            yield mounted.parent.name
