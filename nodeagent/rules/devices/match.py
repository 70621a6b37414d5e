"""Whether a device node or a PCI function is of a class: all that the class says must be true.

Owns the meaning of the words by which a class chooses.
"""

from collections.abc import Iterable
from fnmatch import fnmatchcase

from nodeagent.config.sections.devices import DeviceClass
from nodeagent.model.devices import HostDevices, HostNode, PciPlace, UsbPlace
from nodeagent.model.ids import PciAddress

USB_NODES = "/dev/bus/usb/[0-9]*/[0-9]*"
VFIO_NODES, VFIO_CONTAINER = "/dev/vfio/[0-9]*", "/dev/vfio/vfio"


def matches(device_class: DeviceClass, node: HostNode, host: HostDevices) -> bool:
    """Whether a node is of a class."""
    patterns = name_node_patterns(device_class)
    if patterns and not any(match_path(node.path, pattern) for pattern in patterns):
        return False
    if device_class.sysfs_class is not None and node.sysfs_class != device_class.sysfs_class:
        return False
    if device_class.has_usb_words and (node.usb is None or not _matches_usb(device_class, node.usb)):
        return False
    if not device_class.has_pci_words:
        return True
    if node.pci is None or node.pci not in host.functions:
        return False
    return matches_function(device_class, node.pci, host.functions[node.pci])


def _matches_usb(device_class: DeviceClass, place: UsbPlace) -> bool:
    if device_class.usb_vendor is not None and place.vendor != int(device_class.usb_vendor, 16):
        return False
    if device_class.usb_product is not None and place.product != int(device_class.usb_product, 16):
        return False
    return not device_class.usb_serials or place.serial in device_class.usb_serials


def matches_function(device_class: DeviceClass, address: PciAddress, place: PciPlace) -> bool:
    """Whether a PCI function is of a class."""
    said = device_class
    return all(
        (
            said.pci_vendor is None or place.vendor == int(said.pci_vendor, 16),
            said.pci_class is None or f"{place.pci_class:06x}".startswith(said.pci_class[2:].lower()),
            not said.pci_devices or place.device in {int(each, 16) for each in said.pci_devices},
            not said.pci_drivers or place.driver in said.pci_drivers,
            not said.pci_addresses or _is_among(address, said.pci_addresses),
            not said.pci_parents or (place.parent is not None and _is_among(place.parent, said.pci_parents)),
            not said.amd_partitions or place.partition in {each.lower() for each in said.amd_partitions},
        )
    )


def _is_among(address: PciAddress, patterns: Iterable[str]) -> bool:
    return any(fnmatchcase(address, pattern.lower()) for pattern in patterns)


def match_path(path: str, pattern: str) -> bool:
    """Whether a pattern means a path; a wildcard does not match a slash."""
    parts, patterns = path.split("/"), pattern.split("/")
    return len(parts) == len(patterns) and all(map(fnmatchcase, parts, patterns))


def name_node_patterns(device_class: DeviceClass) -> tuple[str, ...]:
    """The paths at which nodes of a class can be; none where only sysfs tells."""
    if device_class.vfio:
        return (VFIO_NODES,)
    if device_class.has_usb_words and not device_class.nodes and not device_class.sysfs_class:
        return (USB_NODES,)
    return device_class.nodes


def name_extra_patterns(device_class: DeviceClass) -> tuple[str, ...]:
    """The paths of further nodes; a program reaches VFIO groups through a container of VFIO."""
    return (*device_class.extra_nodes, VFIO_CONTAINER) if device_class.vfio else device_class.extra_nodes
