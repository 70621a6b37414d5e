"""The device nodes that the driver needs, and differences from them: the pure half of `device_node_files`.

Owns the table of NVIDIA's nodes and the rule for their links under /dev/char. Without these links a systemd reload
takes the GPUs away from running containers, because udev does not make NVIDIA's nodes.
Refuses to touch the file system.
"""

import stat
from collections.abc import Iterable, Mapping
from enum import StrEnum
from pathlib import Path, PurePosixPath

from nodeagent.edge.host.devices.kernel_modules import NodeParameters, find_control_major
from nodeagent.edge.host.driver.roots import see_from_host
from nodeagent.model.nvidia import IMEX_CHANNELS
from nodeagent.model.values import Value

CONTROL_MINOR = 255
MODESET_MINOR = 254


class DeviceNode(Value, frozen=True):
    """A character device with its right number, mode and owner."""

    name: str
    """Below the dev root's `dev`: `nvidiactl`, `nvidia-caps/nvidia-cap1`."""
    major: int
    minor: int
    mode: int = 0o666
    uid: int = 0
    gid: int = 0
    required: bool = True
    """Whether CUDA in a container fails without the node."""

    @property
    def link_name(self) -> str:
        """The name of the link under /dev/char."""
        return f"{self.major}:{self.minor}"


class CapabilityFile(Value, frozen=True):
    """The device node of a capability, as a file below /proc/driver/nvidia/capabilities describes the node."""

    minor: int
    mode: int
    modify: bool = True


class DriverNumbers(Value, frozen=True):
    """All device numbers of the driver, as the kernel reports them."""

    majors: Mapping[str, int]
    gpu_minors: tuple[int, ...] = ()
    capabilities: tuple[CapabilityFile, ...] = ()
    parameters: NodeParameters = NodeParameters()
    imex_channels: tuple[int, ...] = ()
    """The channels wanted; the kernel has the number of their kind alone."""


class NodeStatus(Value, frozen=True):
    """The file in a node's place, and the link in the place of the node's link."""

    exists: bool = False
    mode: int = 0
    """Mode and file type, as from `stat`."""
    uid: int = 0
    gid: int = 0
    major: int = 0
    minor: int = 0
    link_target: str | None = None
    """Target of the link under /dev/char; `None` without a symbolic link."""
    link_blocked: bool = False
    """Whether another kind of file than a symbolic link is in the link's place."""


class NodeStep(StrEnum):
    """A step by which a node is repaired."""

    CREATE = "create"
    REPLACE = "replace"
    SET_OWNERSHIP = "set mode and owner of"
    LINK = "link"


class NodeChange(Value, frozen=True):
    """A step for a node."""

    node: DeviceNode
    step: NodeStep


def plan_device_nodes(numbers: DriverNumbers) -> tuple[DeviceNode, ...]:
    """The nodes that should exist with this kernel; empty while the driver's module has no device number."""
    control = find_control_major(numbers.majors)
    if control is None:
        return ()
    parameters = numbers.parameters
    nodes = [
        _plan_node("nvidiactl", control, CONTROL_MINOR, parameters),
        _plan_node("nvidia-modeset", control, MODESET_MINOR, parameters, required=False),
    ]
    nodes += [_plan_node(f"nvidia{minor}", control, minor, parameters) for minor in sorted(set(numbers.gpu_minors))]
    if (uvm := numbers.majors.get("nvidia-uvm")) is not None:
        nodes.append(_plan_node("nvidia-uvm", uvm, 0, parameters))
        nodes.append(_plan_node("nvidia-uvm-tools", uvm, 1, parameters, required=False))
    return (*nodes, *_plan_capability_nodes(numbers), *_plan_channels(numbers))


def list_impossible_nodes(numbers: DriverNumbers) -> tuple[str, ...]:
    """Nodes that containers need but that cannot exist yet, each with the reason.

    NVML and nvidia-smi work without the module nvidia_uvm, so its absence goes unnoticed; CUDA does not.
    """
    if find_control_major(numbers.majors) is None or "nvidia-uvm" in numbers.majors:
        return ()
    return ("/dev/nvidia-uvm (the module nvidia_uvm is not loaded)",)


def parse_mig_minors(text: str) -> dict[str, int]:
    """Capability name to minor number from /proc/driver/nvidia-caps/mig-minors; lines of other forms are left out."""
    minors: dict[str, int] = {}
    for line in text.splitlines():
        name, _, minor = line.strip().rpartition(" ")
        if name and minor.isascii() and minor.isdigit():
            minors[name.strip()] = int(minor)
    return minors


def plan_capability_path(name: str) -> str:
    """Where below /proc/driver/nvidia/capabilities the file of a capability named in mig-minors is."""
    if not name.startswith("gpu"):
        return f"mig/{name}"
    gpu, _, rest = name.partition("/")
    return f"{gpu}/mig/{rest}"


def diff_device_node(node: DeviceNode, found: NodeStatus, wanted_link: PurePosixPath) -> tuple[NodeChange, ...]:
    """The changes that make a node and its link right; empty when both are."""
    steps: list[NodeStep] = []
    if not found.exists:
        steps.append(NodeStep.CREATE)
    elif not stat.S_ISCHR(found.mode) or (found.major, found.minor) != (node.major, node.minor):
        steps.append(NodeStep.REPLACE)
    elif (stat.S_IMODE(found.mode), found.uid, found.gid) != (node.mode, node.uid, node.gid):
        steps.append(NodeStep.SET_OWNERSHIP)
    if not found.link_blocked and not _leads_to(found.link_target, wanted_link):
        steps.append(NodeStep.LINK)
    return tuple(NodeChange(node=node, step=step) for step in steps)


def render_link_target(node: DeviceNode, dev_root: Path, host_root: Path) -> PurePosixPath:
    """Target of the link under /dev/char, as the host sees the path."""
    return see_from_host(dev_root / "dev" / node.name, host_root)


def _leads_to(target: str | None, wanted: PurePosixPath) -> bool:
    if target is None:
        return False
    # udev writes its links relative to /dev/char, NVIDIA's tools absolute ones.
    relative = target.startswith("../") and PurePosixPath("/dev") / target.removeprefix("../") == wanted
    return relative or PurePosixPath(target) == wanted


def _plan_node(name: str, major: int, minor: int, parameters: NodeParameters, *, required: bool = True) -> DeviceNode:
    return DeviceNode(
        name=name,
        major=major,
        minor=minor,
        mode=parameters.mode,
        uid=parameters.uid,
        gid=parameters.gid,
        required=required,
    )


def _plan_capability_nodes(numbers: DriverNumbers) -> Iterable[DeviceNode]:
    major = numbers.majors.get("nvidia-caps")
    if major is None:
        return
    for capability in sorted(numbers.capabilities, key=lambda each: each.minor):
        if capability.modify:
            yield DeviceNode(
                name=f"nvidia-caps/nvidia-cap{capability.minor}",
                major=major,
                minor=capability.minor,
                mode=capability.mode,
                required=False,
            )


def _plan_channels(numbers: DriverNumbers) -> Iterable[DeviceNode]:
    major = numbers.majors.get(PurePosixPath(IMEX_CHANNELS).name)
    if major is None:
        return
    for channel in sorted(set(numbers.imex_channels)):
        name = f"{IMEX_CHANNELS.removeprefix('/dev/')}/channel{channel}"
        yield _plan_node(name, major, channel, numbers.parameters, required=False)
