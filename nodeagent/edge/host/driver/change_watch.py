"""Notices possible changes of the driver, without asking the driver.

Owns a fingerprint of the few places that change when a module, a device node, a library or a card comes or goes.
Fingerprints are compared every three quarters of a second: inotify does not see the kernel's own changes in /sys and
/dev, and its events about modules do not reach every container. One comparison takes half a millisecond on a node with
400 PCI functions, if the paths are made once: joining some thirty paths each time was a quarter of an idle agent's
work.
Refuses to name the change: the next poll reads the evidence.
"""

import os
from functools import lru_cache
from pathlib import Path
from typing import NamedTuple

from nodeagent.edge.host.devices.sysfs import PCI_DEVICES
from nodeagent.edge.host.driver.library_search import LIBRARY_PLACES
from nodeagent.edge.host.driver.roots import CONTAINER_DRIVER_ROOT, NVML_LIBRARY, DriverRoots
from nodeagent.edge.host.files.atomic_file import identify
from nodeagent.edge.host.files.pseudo_file import list_names, read_attribute

POLL_SECONDS = 0.75
"""A change must show within a second, with the time of a comparison; each comparison costs half a millisecond."""

WATCH_TIMEOUT_SECONDS = 1.0
"""For one comparison of a millisecond; short, because a comparison is not given up when the agent stops."""

_MODULES = ("nvidia", "nvidia_uvm", "nvidia_modeset", "nouveau")
_NODES = ("nvidiactl", "nvidia-uvm", "nvidia-uvm-tools", "nvidia0")

Fingerprint = tuple[object, ...]


class _Places(NamedTuple):
    """The watched paths, as text."""

    modules: tuple[str, ...]
    version: str
    switches: str
    functions: str
    files: tuple[str, ...]


def read_fingerprint(
    roots: DriverRoots, *, sys_root: Path, proc_root: Path, nvml_library: Path | None = None
) -> Fingerprint:
    """A value that stays equal until the driver changes."""
    places = _list_places(roots, sys_root, proc_root, nvml_library)
    return (
        tuple([_identify_module(path) for path in places.modules]),
        read_attribute(places.version),
        list_names(places.switches),
        list_names(places.functions),
        tuple([identify(path) for path in places.files]),
    )


@lru_cache(maxsize=4)
def _list_places(roots: DriverRoots, sys_root: Path, proc_root: Path, nvml_library: Path | None) -> _Places:
    libraries = [nvml_library] if nvml_library is not None else _list_library_places(roots)
    nodes = [roots.dev / "dev" / name for name in _NODES]
    return _Places(
        modules=tuple(str(sys_root / "module" / name) for name in _MODULES),
        version=str(proc_root / "driver" / "nvidia" / "version"),
        switches=str(proc_root / "driver" / "nvidia-nvswitch" / "devices"),
        functions=str(sys_root / PCI_DEVICES),
        files=tuple(str(path) for path in (*nodes, *libraries)),
    )


def _list_library_places(roots: DriverRoots) -> list[Path]:
    container = roots.host / CONTAINER_DRIVER_ROOT
    places = {roots.driver, roots.host, container}
    found = [root / directory / NVML_LIBRARY for root in sorted(places) for directory in LIBRARY_PLACES]
    return [*found, roots.driver / "etc" / "ld.so.cache", container / "dev"]


def _identify_module(directory: str) -> tuple[object, ...]:
    """A value by which a loaded module differs from the same module loaded again.

    The times of files in /sys are times of caching, and would change by themselves.
    """
    try:
        inode = os.stat(directory).st_ino  # noqa: PTH116  # a path object's own method costs more than the call
    except OSError:
        return ()
    return (inode, os.access(f"{directory}/refcnt", os.F_OK), read_attribute(f"{directory}/version"))
