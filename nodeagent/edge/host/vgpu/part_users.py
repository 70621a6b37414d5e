"""Which folders of limits running containers have, as the mount tables of their processes say.

Owns how that is seen: the kernel keeps it also of what the journal and the container runtime have forgotten.
Refuses to take a folder for unused because a process could not be looked at.
"""

from collections.abc import Collection, Iterator
from pathlib import Path
from typing import Final

from nodeagent.edge.host.errors import FileUnreadable
from nodeagent.edge.host.files.pseudo_file import list_names
from nodeagent.edge.host.vgpu.part_folders import LIMITS

_ROOT_FIELD: Final = 3
"""Of a line in a mount table: what is mounted, from the root of its own file system on."""


def find_mounted(names: Collection[str], proc_root: Path) -> frozenset[str]:
    """Those of the folders of which a process has the limits mounted.

    Raises:
        FileUnreadable: the mounts of a process are not to be seen, or there is no process at all.
    """
    pids = [name for name in list_names(proc_root) if name.isascii() and name.isdigit()]
    if not pids:
        raise FileUnreadable(proc_root, FileNotFoundError(2, "no process is to be seen there"))
    found, seen = set[str](), set[str]()
    for pid in pids:
        namespace = _read_namespace(proc_root / pid)
        if namespace and namespace in seen:
            continue
        seen.add(namespace)
        found.update(_list_folders(proc_root / pid / "mountinfo"))
    return frozenset(found.intersection(names))


def _read_namespace(process: Path) -> str:
    """One look for all processes that see the same mounts; empty where this user may not know."""
    try:
        return str((process / "ns/mnt").readlink())
    except OSError:
        return ""


def _list_folders(table: Path) -> Iterator[str]:
    try:
        lines = table.read_text(encoding="utf-8", errors="replace").splitlines()
    except PermissionError as error:
        raise FileUnreadable(table, error) from error
    except OSError:  # it has ended meanwhile, or is nothing but its exit status
        return
    for line in lines:
        fields = line.split(" ")
        # The kernel adds this to the name of a file that has been removed.
        mounted = Path(fields[_ROOT_FIELD].removesuffix("//deleted") if len(fields) > _ROOT_FIELD else "")
        if mounted.name == LIMITS:
            yield mounted.parent.name
