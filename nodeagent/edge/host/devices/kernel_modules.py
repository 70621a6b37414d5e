"""The state of the NVIDIA kernel modules: loaded or not, version, device numbers, parameters.

Owns the formats of /sys/module, /proc/devices and /proc/driver/nvidia. Refuses to load or unload modules, and to
judge: all answers are plain values, empty where the kernel is silent.
"""

import re
from collections.abc import Iterable, Mapping
from pathlib import Path

from nodeagent.edge.host.files.pseudo_file import list_names, read_attribute, read_number
from nodeagent.model.driver import LoadedModule
from nodeagent.model.values import Value

_VERSION_AFTER_MODULE = re.compile(r"Module\b.*?\s(\d+(?:\.\d+){1,2})(?=\s|$)")
_OPEN_MODULE = "Open Kernel Module"


class ModuleStatus(Value, frozen=True):
    """The driver's kernel module at one time."""

    loaded: bool = False
    version: str = ""
    open_module: bool | None = None
    """Whether the module is the open one; `None` when the kernel does not say."""
    nouveau_loaded: bool = False
    unified_memory_loaded: bool = False


class ModuleVersion(Value, frozen=True):
    """The first line of /proc/driver/nvidia/version."""

    version: str = ""
    open_module: bool | None = None


class NodeParameters(Value, frozen=True):
    """Mode and owner of device nodes, as the driver's parameters demand."""

    modify: bool = True
    """Whether user space may create and change device nodes at all."""
    uid: int = 0
    gid: int = 0
    mode: int = 0o666


def read_module_status(sys_root: Path = Path("/sys"), proc_root: Path = Path("/proc")) -> ModuleStatus:
    """Read the module's state once. A hidden /sys is made up for by /proc, and the other way round."""
    directory = sys_root / "module" / "nvidia"
    told = parse_driver_version(read_attribute(proc_root / "driver" / "nvidia" / "version"))
    modules = parse_modules(read_attribute(proc_root / "modules", limit_bytes=1 << 20))
    return ModuleStatus(
        # The directory alone, without its use count, belongs to a module that is coming or going.
        loaded=bool(read_attribute(directory / "refcnt")) or "nvidia" in modules or bool(told.version),
        version=read_attribute(directory / "version") or told.version,
        open_module=told.open_module,
        nouveau_loaded=(sys_root / "module" / "nouveau").is_dir() or "nouveau" in modules,
        unified_memory_loaded=(sys_root / "module" / "nvidia_uvm").is_dir() or "nvidia_uvm" in modules,
    )


def read_loaded_modules(names: Iterable[str], sys_root: Path = Path("/sys")) -> tuple[LoadedModule, ...]:
    """The loaded ones of some modules."""
    places = (sys_root / "module" / name for name in names)
    return tuple(
        LoadedModule(name=place.name, references=read_number(place / "refcnt"), holders=list_names(place / "holders"))
        for place in places
        if place.is_dir()
    )


def parse_driver_version(text: str) -> ModuleVersion:
    """Read either layout of /proc/driver/nvidia/version, of the proprietary and of the open module."""
    line = text.partition("\n")[0]
    match = _VERSION_AFTER_MODULE.search(line)
    if match is None:
        return ModuleVersion()
    return ModuleVersion(version=match[1], open_module=_OPEN_MODULE in line)


def parse_modules(text: str) -> frozenset[str]:
    """Names of live modules from /proc/modules."""
    # name size users dependants state address; a module that is going away has another state
    lines = (line.split() for line in text.splitlines())
    return frozenset(fields[0] for fields in lines if fields[4:5] == ["Live"])


def parse_character_majors(text: str) -> dict[str, int]:
    """Device numbers by name from the character part of /proc/devices."""
    majors: dict[str, int] = {}
    for line in text.partition("Block devices:")[0].splitlines():
        number, _, name = line.strip().partition(" ")
        if number.isascii() and number.isdigit() and name:
            majors.setdefault(name.strip(), int(number))
    return majors


def find_control_major(majors: Mapping[str, int]) -> int | None:
    """The major number of control and GPU nodes; drivers before 550.40 register another name."""
    return majors.get("nvidia", majors.get("nvidia-frontend"))


def parse_node_parameters(text: str) -> NodeParameters:
    """Read /proc/driver/nvidia/params; a missing parameter has the driver's default."""
    values = parse_fields(text)
    return NodeParameters(
        modify=values.get("ModifyDeviceFiles", 1) != 0,
        uid=values.get("DeviceFileUID", 0),
        gid=values.get("DeviceFileGID", 0),
        mode=values.get("DeviceFileMode", 0o666),
    )


def parse_fields(text: str) -> dict[str, int]:
    """Lines `Name: number` of the driver's own files; other lines are left out."""
    fields: dict[str, int] = {}
    for line in text.splitlines():
        name, _, value = line.partition(":")
        if value.strip().isascii() and value.strip().isdigit():
            fields[name.strip()] = int(value)
    return fields


def read_nvswitch_count(proc_root: Path = Path("/proc")) -> int:
    """The number of NVSwitches that this kernel manages; with NVSwitches, fabric manager is needed."""
    return len(list_names(proc_root / "driver" / "nvidia-nvswitch" / "devices"))
