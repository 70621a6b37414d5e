"""Finds the driver's other files for containers: programs, firmware, configuration, sockets and device nodes.

Owns the lists of names that the field's tools share. Refuses to judge missing files: most are optional.
"""

import os
import platform
import re
import stat
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path, PurePosixPath
from typing import Final

from nodeagent.edge.host.devices.device_nodes import parse_mig_minors
from nodeagent.edge.host.driver.driver_libraries import DriverLibraries, native_triplet
from nodeagent.edge.host.driver.roots import DriverRoots, follow_in_root, resolve_in_root, see_from_host
from nodeagent.edge.host.files.pseudo_file import list_names, read_attribute
from nodeagent.model.cdi import DriverFile, DriverFiles, DriverNode
from nodeagent.model.ids import PciAddress, parse_pci_address

_PROGRAM_DIRECTORIES: Final = ("usr/local/sbin", "usr/local/bin", "usr/sbin", "usr/bin", "sbin", "bin")
_PROGRAMS: Final = (
    "nvidia-smi",
    "nvidia-debugdump",
    "nvidia-persistenced",
    "nv-fabricmanager",
    "nvidia-cuda-mps-control",
    "nvidia-cuda-mps-server",
    "nvidia-imex",
    "nvidia-imex-ctl",
    "nvidia-xconfig",
)
_DATA_DIRECTORIES: Final = ("etc", "usr/local/share", "usr/share")
_SHARED_DATA: Final = (
    "glvnd/egl_vendor.d/10_nvidia.json",
    "egl/egl_external_platform.d/15_nvidia_gbm.json",
    "egl/egl_external_platform.d/10_nvidia_wayland.json",
    "egl/egl_external_platform.d/09_nvidia_wayland2.json",
    "egl/egl_external_platform.d/20_nvidia_xcb.json",
    "egl/egl_external_platform.d/20_nvidia_xlib.json",
    "nvidia/nvoptix.bin",
    "X11/xorg.conf.d/10-nvidia.conf",
    "X11/xorg.conf.d/nvidia-drm-outputclass.conf",
)
_CONFIGURATION: Final = (
    "OpenCL/vendors/nvidia.icd",
    "vulkan/icd.d/nvidia_icd.json",
    "vulkan/icd.d/nvidia_layers.json",
    "vulkan/icd.d/nvidia_icd.x86_64.json",
    "vulkan/icd.d/nvidia_icd.aarch64.json",
    "vulkan/implicit_layer.d/nvidia_layers.json",
)
_GPU_DIRECT_STORAGE: Final = ("etc/cufile.json",)
_SOCKETS: Final = ("nvidia-persistenced/socket", "nvidia-fabricmanager/socket")
_RUN_DIRECTORIES: Final = ("run", "var/run")

_NODES: Final = re.compile(
    r"nvidia\d+|nvidiactl|nvidia-modeset|nvidia-uvm|nvidia-uvm-tools|nvidia-fs\d*|nvidia-nvswitchctl|nvidia-nvswitch\d+"
    r"|gdrdrv"
)
_NODES_BELOW: Final = {
    "nvidia-caps": re.compile(r"nvidia-cap\d+"),
    "nvidia-caps-imex-channels": re.compile(r"channel\d+"),
    "infiniband": re.compile(r"uverbs\d+|rdma_cm"),
    "dri": re.compile(r"card\d+|renderD\d+"),
}
_DRM_NAME: Final = re.compile(r"card\d+|renderD\d+")
_PCI_NAME: Final = re.compile(r"[0-9a-f]{4,8}:[0-9a-f]{2}:[0-9a-f]{2}\.[0-7]")
_UDEV_DATABASE: Final = "run/udev"


def observe_node(path: Path) -> os.stat_result | None:
    """Mode and owner of a device node; `None` for a missing node."""
    try:
        status = os.stat(path)  # noqa: PTH116  # called for each of up to 2048 channels
    except OSError:
        return None
    return status if stat.S_ISCHR(status.st_mode) else None


class DriverFileFinder:
    """All files of the driver on one host, read afresh each time."""

    def __init__(
        self,
        *,
        proc_root: Path = Path("/proc"),
        sys_root: Path = Path("/sys"),
        libraries: DriverLibraries | None = None,
        look: Callable[[Path], os.stat_result | None] = observe_node,
    ) -> None:
        self._proc_root, self._sys_root, self._look = proc_root, sys_root, look
        self._libraries = libraries or DriverLibraries()

    def read(self, roots: DriverRoots) -> DriverFiles:
        """The driver's files now."""
        host_root = PurePosixPath(roots.driver_on_host)
        version, libraries = self._libraries.read(roots.driver, host_root)
        nodes, changed_seconds, problems = self._read_nodes(roots)
        return DriverFiles(
            version=version,
            libraries=libraries,
            files=tuple(_deduplicate(self._list_files(roots.driver, host_root, version))),
            sockets=tuple(_list_sockets(roots.driver, host_root)),
            nodes=nodes,
            nodes_changed_seconds=changed_seconds,
            drm_names=read_drm_names(self._sys_root),
            capability_minors=parse_mig_minors(read_attribute(self._proc_root / "driver/nvidia-caps/mig-minors")),
            triplet=native_triplet(),
            problems=(*self._libraries.problems, *problems),
        )

    def _list_files(self, root: Path, host_root: PurePosixPath, version: str) -> Iterator[DriverFile]:
        for program in _PROGRAMS:
            places = [f"{directory}/{program}" for directory in _PROGRAM_DIRECTORIES]
            yield from _find_first(root, host_root, places, f"/usr/bin/{program}")
        for name in _SHARED_DATA:
            places = [f"{directory}/{name}" for directory in _DATA_DIRECTORIES]
            yield from _find_first(root, host_root, places, f"/usr/share/{name}")
        for name in _CONFIGURATION:
            places = [f"{directory}/{name}" for directory in _DATA_DIRECTORIES]
            yield from _find_first(root, host_root, [*places, name], f"/etc/{name}")
        for name in _GPU_DIRECT_STORAGE:
            yield from _find_first(root, host_root, [name], f"/{name}")
        if (root / _UDEV_DATABASE).is_dir():
            yield DriverFile(path=f"/{_UDEV_DATABASE}", host_path=str(host_root / _UDEV_DATABASE))
        if version:
            yield from self._list_firmware(root, host_root, version)

    def _list_firmware(self, root: Path, host_root: PurePosixPath, version: str) -> Iterator[DriverFile]:
        release = platform.release()
        configured = read_attribute(self._sys_root / "module/firmware_class/parameters/path")
        bases = [configured] if configured.startswith("/") else []
        bases += [f"/lib/firmware/{below}" for below in (f"updates/{release}", "updates", release, ".")]
        for base in bases:
            directory = follow_in_root(root, f"{base}/nvidia/{version}")
            names = list_names(directory) if directory is not None else ()
            found = [name for name in names if name.startswith("gsp") and name.endswith(".bin")]
            for name in found:
                inside = f"/lib/firmware/nvidia/{version}/{name}"
                yield from _find_first(root, host_root, [f"{base}/nvidia/{version}/{name}"], inside)
            if found:
                return

    def _read_nodes(self, roots: DriverRoots) -> tuple[tuple[DriverNode, ...], float, list[str]]:
        nodes: list[DriverNode] = []
        changed_seconds = 0.0
        problems: list[str] = []
        dev_on_host = PurePosixPath(roots.dev_on_host)
        for name in _list_node_names(roots.dev / "dev"):
            status = self._look(roots.dev / "dev" / name)
            if status is None:
                problems.append(f"/dev/{name}: it is no character device")
                continue
            host_path = str(dev_on_host / "dev" / name)
            mode = stat.S_IMODE(status.st_mode)
            changed_seconds = max(changed_seconds, status.st_ctime)
            nodes.append(DriverNode(path=f"/dev/{name}", host_path=host_path, mode=mode, gid=status.st_gid))
        return tuple(nodes), changed_seconds, problems


def find_extra_nodes(host_root: Path, paths: Iterable[str]) -> Iterator[DriverNode]:
    """The device nodes among paths of the host, each at the end of its links: container runtimes follow none."""
    for path in paths:
        place = follow_in_root(host_root, path)
        status = _observe_device(place) if place is not None else None
        if place is not None and status is not None:
            host_path = str(see_from_host(place, host_root))
            yield DriverNode(path=path, host_path=host_path, mode=stat.S_IMODE(status.st_mode), gid=status.st_gid)


def _observe_device(path: Path) -> os.stat_result | None:
    """Mode and owner of a device node of either kind; `None` for anything else."""
    try:
        status = path.lstat()
    except OSError:
        return None
    return status if stat.S_ISCHR(status.st_mode) or stat.S_ISBLK(status.st_mode) else None


def read_drm_names(sys_root: Path) -> dict[PciAddress, tuple[str, ...]]:
    """The DRM devices of each PCI function with DRM devices."""
    devices = sys_root / "bus/pci/devices"
    found: dict[PciAddress, tuple[str, ...]] = {}
    for address in filter(_PCI_NAME.fullmatch, list_names(devices)):
        names = tuple(name for name in list_names(devices / address / "drm") if _DRM_NAME.fullmatch(name))
        if names:
            found[parse_pci_address(address)] = names
    return found


def _list_node_names(dev: Path) -> Iterator[str]:
    yield from (name for name in list_names(dev) if _NODES.fullmatch(name))
    for directory, pattern in _NODES_BELOW.items():
        yield from (f"{directory}/{name}" for name in list_names(dev / directory) if pattern.fullmatch(name))


def _find_first(root: Path, host_root: PurePosixPath, places: Iterable[str], inside: str) -> Iterator[DriverFile]:
    """The first of the places with a file, to be seen at `inside`."""
    for place in places:
        real = resolve_in_root(root, place)
        if real is not None:
            yield DriverFile(path=inside, host_path=str(host_root / real.relative_to(root)))
            return


def _list_sockets(root: Path, host_root: PurePosixPath) -> Iterator[DriverFile]:
    for name in _SOCKETS:
        for directory in _RUN_DIRECTORIES:
            place = follow_in_root(root, f"{directory}/{name}")
            if place is not None and _is_socket(place):
                yield DriverFile(path=f"/run/{name}", host_path=str(host_root / place.relative_to(root)))
                break


def _is_socket(path: Path) -> bool:
    try:
        return stat.S_ISSOCK(path.stat().st_mode)
    except OSError:
        return False


def _deduplicate(files: Iterable[DriverFile]) -> Iterator[DriverFile]:
    """One file for each place, the first file found."""
    seen: set[str] = set()
    for each in files:
        if each.path not in seen:
            seen.add(each.path)
            yield each
