"""The driver's places on this host: its root, its library, its device nodes.

Owns the search order that the field's tools share, so that agent and tools find the same driver.
Refuses to load libraries: a path found here is opened by `edge/nvml/worker` alone.
A driver container brings its own root file system, so absolute symbolic links in it are relative to that root.
"""

import re
from pathlib import Path, PurePosixPath

from nodeagent.edge.host.driver.library_search import follow, resolve, search_library
from nodeagent.edge.host.files.pseudo_file import read_attribute
from nodeagent.model.values import Value

NVML_LIBRARY = "libnvidia-ml.so.1"
CONTAINER_DRIVER_ROOT = "run/nvidia/driver"
_VERSION = re.compile(r"\.so\.(\d+(?:\.\d+){1,2})$")


class DriverRoots(Value, frozen=True):
    """Where to look for the driver, as this process sees the paths."""

    host: Path
    """The host's `/`; another path when the agent runs in a container."""
    driver: Path
    """Prefix of the driver's own paths."""
    dev: Path
    """Prefix of `/dev/nvidia…`."""

    @property
    def is_host_driver(self) -> bool:
        """Whether the driver is installed on the host itself, not brought by a container."""
        return self.driver == self.host

    @property
    def driver_on_host(self) -> str:
        """The driver root as the host's own processes name it."""
        return str(see_from_host(self.driver, self.host))

    @property
    def dev_on_host(self) -> str:
        """The dev root as the host's own processes name it."""
        return str(see_from_host(self.dev, self.host))


def resolve_driver_roots(
    configured: Path = Path("/"), *, dev_root: Path | None = None, host_root: Path = Path("/")
) -> DriverRoots:
    """Find the driver.

    Args:
        configured: Its root; with the host's own root, a driver container counts where the host has no driver.
        dev_root: The root of its device nodes; by default the driver root if that has a `dev`, else the host.
        host_root: The host's `/` as this process sees it.
    """
    driver = _detect_driver_root(host_root) if configured == host_root else configured
    return DriverRoots(host=host_root, driver=driver, dev=dev_root or _resolve_dev_root(driver, host_root))


def see_from_host(path: Path, host_root: Path) -> PurePosixPath:
    """The path as the host's own processes name it; unchanged outside the host's root."""
    return PurePosixPath("/") / path.relative_to(host_root) if path.is_relative_to(host_root) else PurePosixPath(path)


def find_library(root: Path, name: str = NVML_LIBRARY) -> Path | None:
    """The real file of a library below the root, as `library_search` finds it."""
    found = search_library(str(root), name)
    return Path(found) if found is not None else None


def parse_library_version(path: Path | None) -> str:
    """The driver version in a library's file name, `580.173.02`; empty for a name without a version."""
    match = _VERSION.search(path.name) if path is not None else None
    return match[1] if match else ""


def read_version_at(library: Path, root: Path) -> str:
    """The driver version that a new process would get from the directory of a loaded library.

    A library stays mapped after its package was upgraded, so its own file may be gone; the link beside it is not.
    """
    link = library.with_name(NVML_LIBRARY)
    place = library if not link.is_symlink() else link
    found = resolve_in_root(root, str(place.relative_to(root))) if place.is_relative_to(root) else place.resolve()
    return parse_library_version(found)


def resolve_in_root(root: Path, path: str) -> Path | None:
    """Follow symbolic links as a process with `root` as its `/`; `None` unless the end is a regular file."""
    # Most files asked for are missing, and get no path object.
    place = resolve(str(root), path)
    return Path(place) if place is not None else None


def follow_in_root(root: Path, path: str) -> Path | None:
    """The path at the end of symbolic links for a process with `root` as its `/`, whether or not a file is there.

    `None` for links in a circle.
    """
    place = follow(str(root), path, may_lack=True)
    return Path(place) if place is not None else None


def read_platform_problem(roots: DriverRoots) -> str:
    """Why this platform has no driver of the kind the agent knows; empty on an ordinary Linux host."""
    if (roots.host / "usr/lib/wsl/lib/libnvidia-ml.so.1").exists() or (roots.host / "dev/dxg").exists():
        return "this is WSL, where the GPU belongs to Windows and has neither kernel module nor device nodes"
    tegra = (roots.host / "etc/nv_tegra_release").is_file() or read_attribute(
        roots.host / "sys/devices/soc0/family"
    ).lower().startswith("tegra")
    if tegra and find_library(roots.driver) is None:
        return "this is Tegra, whose integrated GPU has no NVML"
    return ""


def _detect_driver_root(host_root: Path) -> Path:
    container = host_root / CONTAINER_DRIVER_ROOT
    if find_library(host_root) is None and find_library(container) is not None:
        return container
    return host_root


def _resolve_dev_root(driver_root: Path, host_root: Path) -> Path:
    return driver_root if (driver_root / "dev").is_dir() else host_root
