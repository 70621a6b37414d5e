"""The devices of a class, from the host's device nodes.

Owns the match of nodes with classes, the grouping of nodes into devices, and the devices' names: a name follows from
values that outlive a reboot, so that a container's record still means the device afterwards.

Refuses to give a node to two classes: the second class does not get it, and both are named.
"""

import re
from collections.abc import Iterable, Sequence
from hashlib import sha256
from typing import Final, NamedTuple

from nodeagent.config.globs import is_pattern
from nodeagent.config.sections.devices import DeviceClass
from nodeagent.model.devices import HostDevice, HostDevices, HostNode
from nodeagent.model.ids import DeviceId, ResourceName
from nodeagent.rules.devices.match import USB_NODES, match_path, matches, name_extra_patterns
from nodeagent.rules.devices.vfio import find_groups
from nodeagent.rules.ids import DEVICE_PREFIX

_DEV: Final = "/dev/"
_NUMBER: Final = re.compile(r"(.*?)([0-9]+)$")
_ODD: Final = re.compile(r"[^A-Za-z0-9_.:-]")
_PLAIN: Final = re.compile(r"[A-Za-z0-9]([A-Za-z0-9_.:-]*[A-Za-z0-9])?")
_HASH_LENGTH: Final = 6
PCI_DEVICES: Final = "bus/pci/devices"


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
    resource, problems = name_resource(device_class), list[str]()
    if device_class.vfio:
        return _plan_vfio(device_class, host, claimed)
    own = [
        node
        for node in host.nodes
        if matches(device_class, node, host) and _claim(node.path, resource, claimed, problems)
    ]
    groups: dict[str, list[HostNode]] = {}
    for node in own:
        key = _find_key(device_class, node)
        other = groups.get(key, [node])[0]
        if not key:
            problems.append(f"{node.path} ends in no number, so that it belongs to no device; narrow `nodes`")
        elif device_class.usb_serials and _is_known_by_usb(device_class, node) and not _share_port(node, other):
            problems.append(f"{node.path} has the serial number of {other.path}; choose them by vendor and product")
        else:
            groups.setdefault(key, []).append(node)
    is_path = device_class.group == "node"
    devices = (_build(device_class, name_key(key, is_path=is_path), nodes, host) for key, nodes in groups.items())
    return Grouped(tuple(sorted(devices, key=lambda one: sort_key(one.nodes[0]))), tuple(problems))


def _claim(path: str, resource: str, claimed: dict[str, str], problems: list[str]) -> bool:
    """Whether no earlier class has the node."""
    if (holder := claimed.setdefault(path, resource)) == resource:
        return True
    problems.append(f"{path} is of {holder} and of {resource}: it stays with {holder}; narrow one of them")
    return False


def _plan_vfio(device_class: DeviceClass, host: HostDevices, claimed: dict[str, str]) -> Grouped:
    """A device for each IOMMU group, named by the group's first function: the numbers of groups change with a boot."""
    resource, problems, devices = name_resource(device_class), list[str](), list[HostDevice]()
    for group in find_groups(device_class, host):
        if group.problem:
            problems.append(group.problem)
        elif _claim(group.path, resource, claimed, problems):
            first = group.functions[0]
            device = HostDevice(
                id=render_id(resource, name_key(first, is_path=False)),
                name=group.path,
                nodes=(group.path,),
                sysfs=f"{PCI_DEVICES}/{first}",
                pci=first,
                pci_addresses=group.functions,
                sensors=f"{PCI_DEVICES}/{first}",
                numa_node=host.functions[first].numa_node,
            )
            devices.append(device)
    return Grouped(tuple(devices), tuple(problems))


def list_extra_nodes(device_class: DeviceClass, host: HostDevices) -> tuple[str, ...]:
    """The further nodes present on the host."""
    patterns = name_extra_patterns(device_class)
    return tuple(node.path for node in host.nodes if any(match_path(node.path, pattern) for pattern in patterns))


def list_missing_extras(device_class: DeviceClass, host: HostDevices) -> tuple[str, ...]:
    """The further nodes that must be there and are not."""
    paths = name_extra_patterns(device_class)
    return tuple(path for path in paths if not is_pattern(path) and path in host.missing)


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
    if node.usb is not None and _is_known_by_usb(device_class, node):
        return node.usb.serial if device_class.usb_serials else f"usb-{node.usb.port}"
    if device_class.group == "device" and node.hardware:
        return str(node.pci) if node.pci is not None and node.hardware.endswith(node.pci) else node.hardware
    return node.path.removeprefix(_DEV)


def _share_port(one: HostNode, other: HostNode) -> bool:
    return one.usb is not None and other.usb is not None and one.usb.port == other.usb.port


def _is_known_by_usb(device_class: DeviceClass, node: HostNode) -> bool:
    """Whether port or serial number name the device: a device's own node has another number after each plugging in."""
    if device_class.group == "device" and device_class.has_usb_words:
        return True
    return device_class.group in ("node", "device") and match_path(node.path, USB_NODES)


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


def _find_companions(device_class: DeviceClass, nodes: Sequence[HostNode], host: HostDevices) -> list[HostNode]:
    """The further nodes of the same hardware, in the order of paths."""
    own = {place for node in nodes if (place := find_hardware(node))}
    return [
        node
        for node in host.nodes
        if any(match_path(node.path, pattern) for pattern in device_class.companion_nodes)
        and find_hardware(node) in own
        and node not in nodes
    ]


def find_hardware(node: HostNode) -> str:
    """The name of the USB device or the PCI function; of a partition of a function, the partition's place in sysfs."""
    if node.usb is not None:
        return node.usb.port
    if node.pci is not None and node.pci in f"{node.sysfs}/{node.hardware}".split("/"):
        return node.pci
    return node.hardware


def _find_sensors(node: HostNode) -> str:
    """The directory with the sensors of a node's hardware; a USB device is not its controller."""
    if node.usb is not None:
        return ""
    return f"{PCI_DEVICES}/{node.pci}" if node.pci is not None else node.hardware


def _build(device_class: DeviceClass, name: str, nodes: Sequence[HostNode], host: HostDevices) -> HostDevice:
    ordered = sorted(nodes, key=lambda node: sort_key(node.path))
    first = ordered[0]
    paths = tuple(node.path for node in (*ordered, *_find_companions(device_class, nodes, host)))
    links = (
        (link, path)
        for link, path in host.links.items()
        if path in paths and any(match_path(link, pattern) for pattern in device_class.links)
    )
    return HostDevice(
        id=render_id(name_resource(device_class), name),
        name=first.path if len(ordered) == 1 else f"{first.path} (+{len(ordered) - 1})",
        nodes=paths,
        links=tuple(links),
        sysfs=first.sysfs,
        pci=first.pci,
        is_partition=first.pci is not None and find_hardware(first) != first.pci and first.usb is None,
        sensors=_find_sensors(first),
        pci_addresses=tuple(dict.fromkeys(node.pci for node in ordered if node.pci is not None)),
        numa_node=next((node.numa_node for node in ordered if node.numa_node is not None), None),
    )


def _hash(text: str) -> str:
    return sha256(text.encode()).hexdigest()[:_HASH_LENGTH]
