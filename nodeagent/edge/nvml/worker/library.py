"""Finds and loads the node's NVML library.

Runs in the worker process, because a foreign file system may hang and a loaded library stays loaded.
Refuses platforms without a full NVML: WSL and Tegra are named.
"""

import ctypes
import os

from nodeagent.edge.host.driver.library_search import search_library

SONAME = "libnvidia-ml.so.1"
CONTAINER_ROOT = "/run/nvidia/driver"
"""Where a driver container shows its file system: the driver of a host that has none itself."""

_WSL = "this is WSL: its GPUs have no NVML events, MIG or device nodes, nodeagent does not serve them"
_TEGRA = "this is a Tegra system: its integrated GPU has no NVML, nodeagent does not serve it"


class LibraryUnusable(Exception):
    """No usable NVML library; the message has the reason and the remedy."""


class Library:
    """A loaded library, and the identity of the file at loading."""

    def __init__(self, handle: ctypes.CDLL, path: str) -> None:
        self.handle, self.path = handle, path
        self._identity = _identify(path)

    def is_replaced(self, path: str) -> bool:
        """Whether the file was replaced: only a new process can load the new file."""
        found = path if os.path.isabs(path) else self.path
        return _identify(found) != self._identity


def find_library(root: str, configured: str) -> str:
    """The library's path below the driver root; on the host itself the bare name, for the dynamic loader.

    Raises:
        LibraryUnusable: The driver root has no library, or the platform no usable NVML.
    """
    whole_root = root.rstrip("/")
    if configured:
        return configured
    if is_wsl(whole_root):
        raise LibraryUnusable(_WSL)
    if not whole_root:
        return SONAME
    # The host of a pod is not this process's own root, and its driver may live in a container all the same.
    path = search_library(whole_root, SONAME) or search_library(whole_root + CONTAINER_ROOT, SONAME)
    if path is None:
        reason = _TEGRA if is_tegra(whole_root) else "is the driver installed there?"
        raise LibraryUnusable(f"no {SONAME} below driver root {root}: {reason}")
    return path


def load_library(path: str) -> Library:
    """Load the library into this process.

    Raises:
        LibraryUnusable: The file is missing, of another architecture, cut short, or not NVML.
    """
    try:
        handle = ctypes.CDLL(path)
    except OSError as error:
        # A container's loader may have an old cache, and a driver container keeps the library in a root of its own.
        found = (search_library("", SONAME) or search_library(CONTAINER_ROOT, SONAME)) if path == SONAME else None
        if found is not None:
            return load_library(found)
        reason = _TEGRA if is_tegra("") else "is the driver installed?"
        raise LibraryUnusable(f"cannot load {path}: {error}: {reason}") from error
    if not hasattr(handle, "nvmlInitWithFlags") or not hasattr(handle, "nvmlDeviceGetCount_v2"):
        raise LibraryUnusable(f"{path} is not an NVML library: it has no nvmlInitWithFlags")
    return Library(handle, path if os.path.isabs(path) else _find_mapped(path))


def is_wsl(root: str) -> bool:
    """Whether the node is Windows' subsystem for Linux."""
    return os.path.exists(f"{root}/dev/dxg") or os.path.exists(f"{root}/usr/lib/wsl/lib")


def is_tegra(root: str) -> bool:
    """Whether the node is a board with an integrated GPU."""
    if os.path.isfile(f"{root}/etc/nv_tegra_release"):
        return True
    try:
        with open(f"{root}/sys/devices/soc0/family", encoding="utf-8", errors="replace") as file:
            return file.read(64).lower().startswith("tegra")
    except OSError:
        return False


def _identify(path: str) -> tuple[int, int, int]:
    try:
        found = os.stat(path)
    except OSError:
        return (0, 0, 0)
    return (found.st_dev, found.st_ino, found.st_mtime_ns)


def _find_mapped(name: str) -> str:
    """The path at which the dynamic loader found a library."""
    stem = name.partition(".so")[0]
    with open("/proc/self/maps", encoding="utf-8", errors="replace") as file:
        for line in file:
            path = line.rstrip("\n").partition("/")[2]
            if os.path.basename(path).startswith(f"{stem}.so"):
                return os.path.realpath(f"/{path}")
    return name
