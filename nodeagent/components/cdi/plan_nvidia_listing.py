"""The paths of driver and GPUs as `nvidia-container-cli list` prints them, from the inputs of the specifications.

Owns the order of that program, which lists fewer libraries than a specification mounts, and its choice of devices.
"""

import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Final

from nodeagent.components.cdi.plan_mounts import is_linked
from nodeagent.model.cdi import DriverFile, DriverFiles
from nodeagent.model.errors import NodeagentError
from nodeagent.model.gpu import Gpu, Inventory, MigDevice
from nodeagent.model.nvidia import CAPABILITY_NODE, IMEX_CHANNELS
from nodeagent.model.values import Value

LISTED_LIBRARIES: Final = (
    *("libnvidia-ml", "libnvidia-cfg", "libnvidia-nscq"),
    *("libcuda", "libcudadebugger", "libnvidia-opencl", "libnvidia-gpucomp", "libnvidia-ptxjitcompiler"),
    *("libnvidia-fatbinaryloader", "libnvidia-allocator", "libnvidia-compiler", "libnvidia-pkcs11"),
    *("libnvidia-pkcs11-openssl3", "libnvidia-nvvm", "libnvidia-tileiras", "libnvidia-ngx", "libvdpau_nvidia"),
    *("libnvidia-encode", "libnvidia-opticalflow", "libnvcuvid", "libnvidia-eglcore", "libnvidia-glcore"),
    *("libnvidia-tls", "libnvidia-glsi", "libnvidia-fbc", "libnvidia-ifr", "libnvidia-rtcore", "libnvoptix"),
    *("libGLX_nvidia", "libEGL_nvidia", "libGLESv2_nvidia", "libGLESv1_CM_nvidia", "libnvidia-glvkspirv"),
    "libnvidia-cbl",
)
_PROGRAMS: Final = (
    *("nvidia-smi", "nvidia-debugdump", "nvidia-persistenced", "nv-fabricmanager"),
    *("nvidia-cuda-mps-control", "nvidia-cuda-mps-server"),
)
_PERSISTENCED: Final = "/run/nvidia-persistenced/socket"
_FABRIC_MANAGER: Final = "/run/nvidia-fabricmanager/socket"
_FIRMWARE: Final = "/lib/firmware/"
_CAPABILITIES: Final = "/proc/driver/nvidia/capabilities"
_CAPABILITIES_OF_GPU: Final = re.compile(r"gpu(\d+)/")
_PCI: Final = re.compile(r"(?P<domain>[0-9a-f]+):(?P<bus>[0-9a-f]{1,2}):(?P<device>[0-9a-f]{1,2})(\.0)?", re.IGNORECASE)
_EVERYTHING: Final = "all"


class Listing(Value, frozen=True):
    """The wanted paths; devices, MIG capabilities and channels as ids joined by commas."""

    devices: str = ""
    mig_config: str = ""
    mig_monitor: str = ""
    channels: str = ""
    programs: bool = False
    libraries: bool = False
    compat32: bool = False
    """The 32-bit libraries too, where libraries are wanted."""
    sockets: bool = False
    firmware: bool = False
    persistenced: bool = True
    fabric_manager: bool = True


EVERYTHING: Final = Listing(
    devices=_EVERYTHING, programs=True, libraries=True, compat32=True, sockets=True, firmware=True
)
"""The paths listed where no option asks for any."""


class ListingRefused(NodeagentError):
    """A word that names nothing of this node."""


class DriverPlaces(Value, frozen=True):
    """Places of the driver that no specification names."""

    root: str = "/"
    """The driver's root as the host names it: paths are told below the root."""
    libraries32: tuple[str, ...] = ()
    """The driver's 32-bit libraries, below the root."""
    mps_pipes: str = ""
    """The directory of the MPS daemon's pipes; empty where there is none."""


class _Chosen(Value, frozen=True):
    gpus: tuple[Gpu, ...] = ()
    mig_devices: tuple[MigDevice, ...] = ()
    is_everything: bool = False


def plan_listing(wanted: Listing, inventory: Inventory, files: DriverFiles, host: DriverPlaces) -> tuple[str, ...]:
    """The wanted paths, in the order of NVIDIA's program.

    Raises:
        ListingRefused: A wanted device or channel is not of this node.
    """
    chosen = _choose(wanted.devices, inventory)
    lists = (
        _list_devices(wanted, chosen, files),
        _list_channels(wanted.channels),
        _list_rights("config", wanted.mig_config, chosen, files),
        _list_rights("monitor", wanted.mig_monitor, chosen, files),
        _list_programs(files, host.root) if wanted.programs else (),
        _order(each.path for each in files.libraries if is_linked(each)) if wanted.libraries else (),
        _order(host.libraries32) if wanted.libraries and wanted.compat32 else (),
        _list_sockets(wanted, files, host.mps_pipes) if wanted.sockets else (),
        (each.path for each in files.files if each.path.startswith(_FIRMWARE)) if wanted.firmware else (),
    )
    return tuple(path for each in lists for path in each)


def _choose(ids: str, inventory: Inventory) -> _Chosen:
    gpus: dict[Gpu, None] = {}
    mig_devices: dict[MigDevice, None] = {}
    for name in filter(None, ids.split(",")):
        if name.lower() == _EVERYTHING:
            parts = tuple(each for gpu in inventory.gpus for each in gpu.mig_devices)
            return _Chosen(gpus=inventory.gpus, mig_devices=parts, is_everything=True)
        gpu, part = _find(name, inventory)
        gpus[gpu] = None
        if part is not None:
            mig_devices[part] = None
    return _Chosen(gpus=tuple(gpus), mig_devices=tuple(mig_devices))


def _find(name: str, inventory: Inventory) -> tuple[Gpu, MigDevice | None]:
    for gpu in inventory.gpus:
        if name.lower() == gpu.uuid.lower() or name == str(gpu.index) or _read_address(name) == gpu.pci.address:
            return gpu, None
        for part in gpu.mig_devices:
            if name.lower() == part.uuid.lower() or name == f"{gpu.index}:{part.index}":
                return gpu, part
    raise ListingRefused(f"{name}: unknown device: `nodeagent gpu list` shows the GPUs of this node")


def _read_address(name: str) -> str:
    """The kernel's form of a PCI address with the driver's longer domain, or with zeros left out."""
    found = _PCI.fullmatch(name)
    if found is None:
        return ""
    return f"{int(found['domain'], 16):04x}:{int(found['bus'], 16):02x}:{int(found['device'], 16):02x}.0"


def _list_devices(wanted: Listing, chosen: _Chosen, files: DriverFiles) -> Iterator[str]:
    if not wanted.devices:
        return
    there = {node.path for node in files.nodes}
    yield from (path for path in files.vendor.control_nodes if path in there)
    yield from (files.vendor.find_node(gpu.minor) for gpu in chosen.gpus if gpu.minor is not None)
    if wanted.mig_config or wanted.mig_monitor:
        return
    minors = {gpu.uuid: gpu.minor for gpu in chosen.gpus}
    for part in chosen.mig_devices:
        instance = f"gpu{minors[part.parent]}/gi{part.gpu_instance_id}"
        names = (f"{instance}/access", f"{instance}/ci{part.compute_instance_id}/access")
        yield from (f"{_CAPABILITIES}/{name.replace('/', '/mig/', 1)}" for name in names)
        yield from _list_nodes(names, files.capability_minors)


def _list_nodes(names: Iterable[str], minors: Mapping[str, int]) -> Iterator[str]:
    """The device nodes of capabilities; older drivers have files of /proc alone."""
    yield from (CAPABILITY_NODE.format(minor=minors[name]) for name in names if name in minors)


def _list_channels(channels: str) -> Iterator[str]:
    for number in filter(None, channels.split(",")):
        if not re.fullmatch(r"\d+", number, re.ASCII):
            raise ListingRefused(f"{number}: unknown IMEX channel: name channels by numbers, such as 0,1")
        yield f"{IMEX_CHANNELS}/channel{int(number)}"


def _list_rights(right: str, ids: str, chosen: _Chosen, files: DriverFiles) -> Iterator[str]:
    """The files for making MIG devices, or for looking at all MIG devices, on the chosen GPUs."""
    for name in filter(None, ids.split(",")):
        if name.lower() != _EVERYTHING:
            raise ListingRefused(f"{name}: unknown device for --mig-{right}: the one possible value is `all`")
        if chosen.mig_devices and not chosen.is_everything:
            raise ListingRefused(f"--mig-{right} is for whole GPUs: leave the MIG devices out of --device")
    gpus = [gpu for gpu in chosen.gpus if gpu.mig is not None] if ids.strip(",") else []
    if not gpus:
        return
    yield f"{_CAPABILITIES}/mig/{right}"
    yield from _list_nodes((right,), files.capability_minors)
    for gpu in gpus:
        yield f"{_CAPABILITIES}/gpu{gpu.minor}"
        if files.capability_minors:
            yield CAPABILITY_NODE.rpartition("/")[0]
            yield from _list_nodes(filter(_is_of_gpu(gpu), files.capability_minors), files.capability_minors)


def _is_of_gpu(gpu: Gpu) -> Callable[[str], bool]:
    return lambda name: (found := _CAPABILITIES_OF_GPU.match(name)) is not None and int(found[1]) == gpu.minor


def _list_programs(files: DriverFiles, root: str) -> Iterator[str]:
    there = {each.name: each for each in files.files if each.directory == "/usr/bin"}
    yield from (_see_below(there[name], root) for name in _PROGRAMS if name in there)


def _see_below(file: DriverFile, root: str) -> str:
    """The file's real place below the driver's root; a container has it elsewhere."""
    return f"/{file.host_path.removeprefix(root).lstrip('/')}"


def _order(paths: Iterable[str]) -> Iterator[str]:
    by_stem: dict[str, str] = {}
    for path in paths:
        by_stem.setdefault(path.rpartition("/")[2].partition(".so.")[0], path)
    yield from (by_stem[stem] for stem in LISTED_LIBRARIES if stem in by_stem)


def _list_sockets(wanted: Listing, files: DriverFiles, mps_pipes: str) -> Iterator[str]:
    there = {each.path for each in files.sockets}
    for path, is_wanted in ((_PERSISTENCED, wanted.persistenced), (_FABRIC_MANAGER, wanted.fabric_manager)):
        if is_wanted and path in there:
            yield path
    if mps_pipes:
        yield mps_pipes
