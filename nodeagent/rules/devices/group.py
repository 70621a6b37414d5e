"""The devices of a class, from the host's device nodes.

Owns the match of nodes with classes, the grouping of nodes into devices, and the devices' names: a name follows from
values that outlive a reboot, so that a container's record still means the device afterwards.

Refuses to give a node to two classes: the second class does not get it, and both are named.
"""

import re
from collections.abc import Iterable, Sequence
from fnmatch import fnmatchcase
from hashlib import sha256
from typing import Final, NamedTuple

from nodeagent.config.globs import is_pattern
from nodeagent.config.sections.devices import DeviceClass
from nodeagent.model.devices import HostDevice, HostDevices, HostNode
from nodeagent.model.ids import DeviceId, ResourceName
from nodeagent.rules.ids import DEVICE_PREFIX

_DEV: Final = "/dev/"
_NUMBER: Final = re.compile(r"(.*?)([0-9]+)$")
_ODD: Final = re.compile(r"[^A-Za-z0-9_.:-]")
_PLAIN: Final = re.compile(r"[A-Za-z0-9]([A-Za-z0-9_.:-]*[A-Za-z0-9])?")
_HASH_LENGTH: Final = 6


class Grouped(NamedTuple):
    """The devices of a class, and the problems of nodes left out."""

    devices: tuple[HostDevice, ...]
    problems: tuple[str, ...] = ()


def plan_classes(classes: Iterable[DeviceClass], host: HostDevices) -> dict[ResourceName, Grouped]:
    """The devices of each class, by resource, in natural order."""
    claimed: dict[str, str] = {}
    return {name_resource(each): _plan_class(each, host, claimed) for each in classes}


def name_resource(device_class: DeviceClass) -> ResourceName:
    """The resource name for pods; a class without a name is refused when settings are read."""
    assert device_class.resource
    return ResourceName(device_class.resource)


def _plan_class(device_class: DeviceClass, host: HostDevices, claimed: dict[str, str]) -> Grouped:
    resource, problems = name_resource(device_class), []
    own: list[HostNode] = []
    for node in host.nodes:
        if not matches(device_class, node, host):
            continue
        if (holder := claimed.setdefault(node.path, resource)) != resource:
            problems.append(f"{node.path} is of {holder} and of {resource}: it stays with {holder}; narrow one of them")
        else:
            own.append(node)
    groups: dict[str, list[HostNode]] = {}
    for node in own:
        key = _find_key(device_class, node)
        if key:
            groups.setdefault(key, []).append(node)
        else:
            problems.append(f"{node.path} ends in no number, so that it belongs to no device; narrow `nodes`")
    is_path = device_class.group == "node"
    devices = (_build(resource, name_key(key, is_path=is_path), nodes) for key, nodes in groups.items())
    return Grouped(tuple(sorted(devices, key=lambda one: sort_key(one.nodes[0]))), tuple(problems))


def matches(device_class: DeviceClass, node: HostNode, host: HostDevices) -> bool:
    """Whether a node is of a class: every condition of the class must be true."""
    if device_class.nodes and not any(match_path(node.path, pattern) for pattern in device_class.nodes):
        return False
    if device_class.sysfs_class is not None and node.sysfs_class != device_class.sysfs_class:
        return False
    if device_class.pci_vendor is None and device_class.pci_class is None:
        return True
    place = host.functions.get(node.pci) if node.pci is not None else None
    if place is None:
        return False
    if device_class.pci_vendor is not None and place.vendor != int(device_class.pci_vendor, 16):
        return False
    return device_class.pci_class is None or f"{place.pci_class:06x}".startswith(device_class.pci_class[2:].lower())


def match_path(path: str, pattern: str) -> bool:
    """Whether a pattern means a path; a wildcard does not match a slash."""
    parts, patterns = path.split("/"), pattern.split("/")
    return len(parts) == len(patterns) and all(map(fnmatchcase, parts, patterns))


def list_extra_nodes(device_class: DeviceClass, host: HostDevices) -> tuple[str, ...]:
    """The further nodes present on the host."""
    return tuple(
        node.path for node in host.nodes if any(match_path(node.path, pattern) for pattern in device_class.extra_nodes)
    )


def list_missing_extras(device_class: DeviceClass, host: HostDevices) -> tuple[str, ...]:
    """The further nodes that must be there and are not."""
    return tuple(path for path in device_class.extra_nodes if not is_pattern(path) and path in host.missing)


def split_number(path: str) -> tuple[str, int | None]:
    """The path without the number at the end, and the number."""
    directory, slash, name = path.rpartition("/")
    found = _NUMBER.fullmatch(name)
    return (path, None) if found is None else (f"{directory}{slash}{found.group(1)}", int(found.group(2)))


def sort_key(path: str) -> tuple[str, int]:
    """Orders paths as people count."""
    stem, number = split_number(path)
    return stem, -1 if number is None else number


def _find_key(device_class: DeviceClass, node: HostNode) -> str:
    """The grouping key of a node; empty for a node that belongs to no device."""
    if device_class.group == "all":
        return "all"
    if device_class.group == "number":
        number = split_number(node.path)[1]
        return "" if number is None else str(number)
    if device_class.group == "device" and node.hardware:
        return str(node.pci) if node.pci is not None and node.hardware.endswith(node.pci) else node.hardware
    return node.path.removeprefix(_DEV)


def name_key(key: str, *, is_path: bool) -> str:
    """The name of a device within the class, in letters for every file and runtime, and unique there."""
    text = key.lstrip("/")
    plain = _ODD.sub("_", text.replace("/", ":"))
    is_reversible = ":" not in text and plain.replace(":", "/") == text if is_path else plain == text
    if is_reversible and _PLAIN.fullmatch(plain):
        return plain
    return f"{plain.rpartition(':')[2].strip('_.-')}-{_hash(text)}".lstrip("-")


def render_id(resource: str, name: str) -> DeviceId:
    """The id of a device, unique among all resources."""
    return DeviceId(f"{DEVICE_PREFIX}{resource.rpartition('/')[2]}-{_hash(resource)}-{name}")


def parse_id(device: str, resource: str) -> str | None:
    """The name of the device within the class; `None` for an id of another class."""
    head = render_id(resource, "")
    return device.removeprefix(head) if device.startswith(head) else None


def _build(resource: ResourceName, name: str, nodes: Sequence[HostNode]) -> HostDevice:
    ordered = sorted(nodes, key=lambda node: sort_key(node.path))
    first = ordered[0]
    return HostDevice(
        id=render_id(resource, name),
        name=first.path if len(ordered) == 1 else f"{first.path} (+{len(ordered) - 1})",
        nodes=tuple(node.path for node in ordered),
        sysfs=first.sysfs,
        pci=first.pci,
        numa_node=next((node.numa_node for node in ordered if node.numa_node is not None), None),
    )


def _hash(text: str) -> str:
    return sha256(text.encode()).hexdigest()[:_HASH_LENGTH]
