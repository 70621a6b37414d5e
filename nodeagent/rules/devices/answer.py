"""What a container gets with its devices: nodes, mounts, variables, or names for its runtime.

Owns how nodes are called in the container and which names specifications define.
A name means the same as long as the device exists, so that a container that is created late is not given another one:
a device that is counted from 0 has one name for each place that it may have among a container's devices.
"""

import re
from collections.abc import Iterable, Sequence
from hashlib import sha256
from typing import Final

from msgspec import json

from nodeagent.config.sections.devices import DeviceClass
from nodeagent.model.devices import HostDevice
from nodeagent.model.plugin import ContainerAnswer, ContainerDevice, ContainerMount
from nodeagent.rules.cdi_names import qualify
from nodeagent.rules.devices.group import name_resource, parse_id, sort_key, split_number

SPEC_PREFIX: Final = "nodeagent-device-"
"""What the names of these specifications begin with, and no other file's."""
PLACES_MAX: Final = 64
"""Devices of a counted class for which names are written, as many for each; a class with more is given by nodes."""
CDI_VERSION: Final = "0.5.0"
"""The first in which a node may be called otherwise in the container."""
_CLASS: Final = re.compile(r"[A-Za-z]([A-Za-z0-9_-]*[A-Za-z0-9])?")


def order_devices(devices: Iterable[HostDevice]) -> tuple[HostDevice, ...]:
    """In the order in which a container counts them."""
    return tuple(sorted(devices, key=lambda device: sort_key(device.nodes[0])))


def place_nodes(device_class: DeviceClass, devices: Iterable[HostDevice]) -> tuple[tuple[str, str], ...]:
    """Each node as the host has it, and as the container sees it."""
    nodes = [node for device in order_devices(devices) for node in device.nodes]
    if not device_class.renumber:
        return tuple((node, node) for node in nodes)
    counts: dict[str, int] = {}
    placed = []
    for node in nodes:
        stem, number = split_number(node)
        if number is None:
            placed.append((node, node))
        else:
            placed.append((node, f"{stem}{counts.get(stem, 0)}"))
            counts[stem] = counts.get(stem, 0) + 1
    return tuple(placed)


def name_kind(resource: str) -> str:
    """The kind of a class's names in CDI: never one that a vendor's own tool writes."""
    domain, _, base = resource.partition("/")
    name = base if _CLASS.fullmatch(base) else f"d{sha256(base.encode()).hexdigest()[:8]}"
    return f"devices.{domain}/{name}"


def name_spec_file(resource: str) -> str:
    """The file that defines a class's names."""
    return f"{SPEC_PREFIX}{name_kind(resource).removeprefix('devices.').replace('/', '-')}.json"


def is_named(device_class: DeviceClass, devices: Sequence[HostDevice]) -> bool:
    """Whether names can say what a container of this class gets."""
    if not device_class.renumber:
        return True
    stems = [[split_number(node)[0] for node in device.nodes] for device in devices]
    return len(devices) <= PLACES_MAX and all(sorted(each) == sorted(set(each)) == sorted(stems[0]) for each in stems)


def name_devices(device_class: DeviceClass, devices: Sequence[HostDevice]) -> tuple[str, ...]:
    """The names of these devices of one container."""
    resource = name_resource(device_class)
    names = [parse_id(device.id, resource) or "" for device in order_devices(devices)]
    if device_class.renumber:
        names = [_name_place(name, place) for place, name in enumerate(names)]
    return tuple(qualify(name_kind(resource), name) for name in names)


def _name_place(name: str, place: int) -> str:
    return f"{name}.as.{place}"


def render_spec(device_class: DeviceClass, devices: Sequence[HostDevice]) -> bytes:
    """The specification of a class: a CDI file."""
    resource, entries = name_resource(device_class), []
    for device in devices:
        name = parse_id(device.id, resource) or ""
        if not device_class.renumber:
            entries.append(_render_device(device_class, name, [(node, node) for node in device.nodes]))
            continue
        for place in range(len(devices)):
            nodes = [(node, _number(node, place)) for node in device.nodes]
            entries.append(_render_device(device_class, _name_place(name, place), nodes))
    content = {"cdiVersion": CDI_VERSION, "kind": name_kind(resource), "devices": entries}
    return json.format(json.encode(content), indent=2) + b"\n"


def _number(node: str, place: int) -> str:
    stem, number = split_number(node)
    return node if number is None else f"{stem}{place}"


def _render_device(device_class: DeviceClass, name: str, nodes: Iterable[tuple[str, str]]) -> dict[str, object]:
    rendered = [{"path": there, "hostPath": here, "permissions": device_class.permissions} for here, there in nodes]
    return {"name": name, "containerEdits": {"deviceNodes": rendered}}


def plan_answer(
    device_class: DeviceClass, devices: Sequence[HostDevice], extra_nodes: Sequence[str], *, by_name: bool
) -> ContainerAnswer:
    """What one container needs.

    Args:
        device_class: the class of the devices.
        devices: those of the container, each once.
        extra_nodes: what it gets with them.
        by_name: whether its runtime is told names rather than nodes.
    """
    placed = place_nodes(device_class, devices)
    nodes = (*placed, *((node, node) for node in extra_nodes))
    passed = nodes[len(placed) :] if by_name else nodes
    return ContainerAnswer(
        environment=_plan_environment(device_class, devices, [there for _, there in placed]),
        mounts=tuple(
            ContainerMount(
                container_path=str(mount.container or mount.host), host_path=str(mount.host), read_only=mount.read_only
            )
            for mount in device_class.mounts
        ),
        devices=tuple(
            ContainerDevice(container_path=there, host_path=here, permissions=device_class.permissions)
            for here, there in passed
        ),
        cdi_devices=name_devices(device_class, devices) if by_name else (),
    )


def _plan_environment(device_class: DeviceClass, devices: Sequence[HostDevice], nodes: Sequence[str]) -> dict[str, str]:
    names = [parse_id(device.id, name_resource(device_class)) or "" for device in order_devices(devices)]
    said = {"{nodes}": ",".join(nodes), "{devices}": ",".join(names), "{count}": str(len(devices))}
    environment = {}
    for name, text in device_class.environment.items():
        for mark, value in said.items():
            text = text.replace(mark, value)  # noqa: PLW2901  # one text, mark by mark
        environment[name] = text
    return environment
