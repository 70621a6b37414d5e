"""The CDI names of devices, and the device nodes of each.

Owns two rules: a GPU without its node is left out, with the reason, and all others stay; and a container's process
that drops root keeps access to nodes restricted to a group.
"""

from collections.abc import Iterable, Mapping
from pathlib import Path

from nodeagent.components.cdi.spec import ContainerEdits, Device, DeviceNode, Hook
from nodeagent.model.cdi import DriverFiles, DriverNode
from nodeagent.model.gpu import Gpu, Inventory, MigDevice
from nodeagent.model.nvidia import CAPABILITY_NODE, IMEX_CHANNELS, MANAGEMENT_NODE
from nodeagent.model.values import Value
from nodeagent.rules.cdi_names import ALL, list_cdi_names

CREATE_LINKS = "create-symlinks"
PERMISSIONS = "rwm"
_CHANNEL = f"{IMEX_CHANNELS}/channel"
_GRAPHICS = "gfx"


class DevicePlan(Value, frozen=True):
    """The devices of a specification, and the devices left out."""

    devices: tuple[Device, ...] = ()
    left_out: tuple[str, ...] = ()


class _Entry(Value, frozen=True):
    """A GPU or MIG device: names, and nodes or the reason for missing nodes."""

    names: tuple[str, ...]
    nodes: tuple[DriverNode, ...] = ()
    links: tuple[str, ...] = ()
    """Links to the DRM nodes by the GPU's PCI address, as arguments of the hook."""
    reason: str = ""


def plan_gpu_devices(inventory: Inventory, files: DriverFiles, *, hook: Path | None = None) -> DevicePlan:
    """Every GPU without MIG and every MIG device, by index, type and UUID, and all of them together."""
    if files.made_up:
        return _plan_made_up(inventory)
    nodes = {node.path: node for node in files.nodes}
    entries = [entry for gpu in inventory.gpus for entry in _plan_gpu(gpu, nodes, files)]
    found = [entry for entry in entries if not entry.reason]
    devices = [
        Device(name=name, container_edits=_render_edits(entry.nodes, entry.links, hook))
        for entry in found
        for name in entry.names
    ]
    if found:
        nodes_of_all = [node for entry in found for node in entry.nodes]
        links = dict.fromkeys(link for entry in found for link in entry.links)
        devices.append(Device(name=ALL, container_edits=_render_edits(nodes_of_all, links, hook)))
    left_out = tuple(f"{entry.names[-1]} (GPU {entry.names[0]}): {entry.reason}" for entry in entries if entry.reason)
    return DevicePlan(devices=tuple(devices), left_out=left_out)


def render_hook(program: Path, command: str, *arguments: str) -> Hook:
    """A call of the hook program while a container is created."""
    return Hook(hook_name="createContainer", path=str(program), args=(program.name, command, *arguments))


def plan_node_edits(paths: Iterable[str], files: DriverFiles) -> ContainerEdits:
    """The existing nodes among the paths; a path ending in `*` stands for a number or nothing at the end."""
    wanted = tuple(paths)
    return _render_edits([node for node in files.nodes if any(_matches(node.path, path) for path in wanted)])


def plan_management_edits(files: DriverFiles) -> ContainerEdits:
    """Every node of the driver but the nodes of other kinds."""
    return _render_edits([node for node in files.nodes if MANAGEMENT_NODE.match(node.path)])


def plan_channel_devices(files: DriverFiles) -> tuple[Device, ...]:
    """A device for each existing IMEX channel, by number, and all channels together."""
    channels = {node.path.removeprefix(_CHANNEL): node for node in files.nodes if node.path.startswith(_CHANNEL)}
    devices = [
        Device(name=number, container_edits=_render_edits([channels[number]])) for number in sorted(channels, key=int)
    ]
    if channels:
        devices.append(Device(name=ALL, container_edits=_render_edits(channels.values())))
    return tuple(devices)


def _plan_gpu(gpu: Gpu, nodes: Mapping[str, DriverNode], files: DriverFiles) -> tuple[_Entry, ...]:
    if gpu.mig_enabled:
        return tuple(_plan_mig_device(device, gpu, nodes, files) for device in gpu.mig_devices)
    names = list_cdi_names(gpu)
    node = _find_node(gpu, nodes, files)
    if isinstance(node, str):
        return (_Entry(names=names, reason=node),)
    drm = _find_drm(gpu, nodes, files)
    return (_Entry(names=names, nodes=(node, *drm), links=_plan_links(gpu, drm)),)


def _plan_mig_device(device: MigDevice, gpu: Gpu, nodes: Mapping[str, DriverNode], files: DriverFiles) -> _Entry:
    names = list_cdi_names(gpu, device)
    node = _find_node(gpu, nodes, files)
    if isinstance(node, str):
        return _Entry(names=names, reason=node)
    instance = f"gpu{gpu.minor}/gi{device.gpu_instance_id}"
    found = [node]
    for capability in (f"{instance}/access", f"{instance}/ci{device.compute_instance_id}/access"):
        minor = files.capability_minors.get(capability)
        if minor is None:
            return _Entry(names=names, reason=f"the driver names no capability {capability}")
        path = CAPABILITY_NODE.format(minor=minor)
        if path not in nodes:
            return _Entry(names=names, reason=f"{path} is missing")
        found.append(nodes[path])
    drm = _find_drm(gpu, nodes, files) if _GRAPHICS in device.profile else ()
    return _Entry(names=names, nodes=(*found, *drm), links=_plan_links(gpu, drm))


def _find_node(gpu: Gpu, nodes: Mapping[str, DriverNode], files: DriverFiles) -> DriverNode | str:
    """The GPU's device node, or why the GPU is left out."""
    if gpu.lost:
        return f"the GPU is lost: {gpu.lost}"
    if gpu.minor is None:
        return "the driver does not tell its minor number"
    path = files.vendor.find_node(gpu.minor)
    return nodes.get(path, f"{path} is missing")


def _find_drm(gpu: Gpu, nodes: Mapping[str, DriverNode], files: DriverFiles) -> tuple[DriverNode, ...]:
    paths = (f"/dev/dri/{name}" for name in files.drm_names.get(gpu.pci.address, ()))
    return tuple(nodes[path] for path in paths if path in nodes)


def _plan_links(gpu: Gpu, drm: Iterable[DriverNode]) -> tuple[str, ...]:
    """`../card1::/dev/dri/by-path/pci-0000:07:00.0-card` and `…-render`, as the host's udev has them."""
    place = f"/dev/dri/by-path/pci-{gpu.pci.address}"
    return tuple(f"--link=../{node.name}::{place}-{node.name.rstrip('0123456789D')}" for node in drm)


def _render_edits(nodes: Iterable[DriverNode], links: Iterable[str] = (), hook: Path | None = None) -> ContainerEdits:
    by_path = {node.path: node for node in nodes}
    ordered = [by_path[path] for path in sorted(by_path, key=lambda path: (path.count("/"), path))]
    arguments = tuple(links) if hook is not None else ()
    return ContainerEdits(
        device_nodes=tuple(render_node(node) for node in ordered),
        hooks=(render_hook(hook, CREATE_LINKS, *arguments),) if hook is not None and arguments else (),
        additional_gids=tuple(sorted({node.group for node in ordered} - {0})),
    )


def render_node(node: DriverNode, permissions: str = PERMISSIONS) -> DeviceNode:
    """A device node in the format's form."""
    return DeviceNode(
        path=node.path,
        host_path=node.host_path if node.host_path != node.path else "",
        file_mode=node.mode if node.group else 0,
        permissions=permissions,
        gid=node.group,
    )


def _matches(path: str, wanted: str) -> bool:
    if not wanted.endswith("*"):
        return path == wanted
    stem = wanted[:-1]
    rest = path.removeprefix(stem)
    return path.startswith(stem) and (not rest or rest.isdigit())


def _plan_made_up(inventory: Inventory) -> DevicePlan:
    """Devices of a simulation: variables name a container's devices, and nothing of the host is touched."""
    devices: list[Device] = []
    told: list[str] = []
    for gpu in inventory.gpus:
        alone = () if gpu.mig_enabled else (list_cdi_names(gpu),)
        parts = (list_cdi_names(gpu, mig) for mig in gpu.mig_devices)
        for names in (*alone, *parts):
            variable = f"NODEAGENT_SIMULATED_{names[0].replace(':', '_')}={names[-1]}"
            told.append(variable)
            devices += [Device(name=name, container_edits=ContainerEdits(env=(variable,))) for name in names]
    if told:
        devices.append(Device(name=ALL, container_edits=ContainerEdits(env=tuple(told))))
    return DevicePlan(devices=tuple(devices))
