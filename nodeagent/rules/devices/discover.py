"""Possible classes of this host: ready-made classes with devices here, and accelerators of no such class.

Owns the proposals and their words. Refuses to propose the driver's GPUs, which the agent gives by itself.
"""

from collections.abc import Iterable

from nodeagent.config.sections.devices import DeviceClass
from nodeagent.model.devices import HostDevice, HostDevices
from nodeagent.model.nvidia import PCI_VENDOR
from nodeagent.model.values import Value
from nodeagent.rules.devices.group import plan_classes
from nodeagent.rules.devices.match import matches
from nodeagent.rules.devices.vfio import find_groups

_NAME_IT = "give it the name that its pods ask for"
_WHOLE = "spx_nps1"
_DISPLAY, _ACCELERATOR = 0x03, 0x12


class Proposal(Value, frozen=True):
    """A possible class of this host."""

    use: str
    """The ready-made class; empty for a class written out."""
    resource: str
    devices: tuple[str, ...]
    lines: tuple[str, ...]
    """The lines to write below `devices.classes`."""
    note: str = ""


def propose(ready: Iterable[DeviceClass], host: HostDevices) -> tuple[Proposal, ...]:
    """All proposals, ready-made classes first."""
    classes = tuple(ready)
    found = []
    for each in classes:
        for resource, grouped in plan_classes((each,), host).items():
            if grouped.devices:
                found.append(
                    Proposal(
                        use=each.use or "",
                        resource=resource,
                        devices=tuple(device.name for device in grouped.devices),
                        lines=(f"- use: {each.use}",),
                        note=_describe_partitions(grouped.devices, host),
                    )
                )
    return (*found, *_propose_unknown(classes, host), *_propose_vfio(host))


def _describe_partitions(devices: Iterable[HostDevice], host: HostDevices) -> str:
    """The note that some of the devices are partitions of a GPU; empty without any."""
    places = (host.functions.get(device.pci) for device in devices if device.pci is not None)
    kinds = sorted({place.partition for place in places if place is not None} - {"", _WHOLE})
    if not kinds:
        return ""
    return f"partitioned as {' and '.join(kinds)}; with `amd_partitions` each kind can have a resource of its own"


def _propose_vfio(host: HostDevices) -> Iterable[Proposal]:
    """Functions bound to VFIO in whole IOMMU groups, by vendor and device id of each group's first function."""
    kinds: dict[tuple[int, int], list[str]] = {}
    for group in find_groups(DeviceClass(vfio=True), host):
        if not group.problem:
            place = host.functions[group.functions[0]]
            kinds.setdefault((place.vendor, place.device), []).append(group.path)
    for (vendor, device), nodes in sorted(kinds.items()):
        resource = f"devices.nodeagent.io/vfio-{vendor:04x}-{device:04x}"
        lines = (
            f"- resource: {resource}",
            "  vfio: true",
            f'  pci_vendor: "0x{vendor:04x}"',
            f'  pci_devices: ["0x{device:04x}"]',
        )
        yield Proposal(use="", resource=resource, devices=tuple(nodes), lines=lines, note=_NAME_IT)


def _propose_unknown(classes: tuple[DeviceClass, ...], host: HostDevices) -> Iterable[Proposal]:
    """Accelerators with nodes of their own, by vendor and class."""
    kinds: dict[tuple[int, int], list[str]] = {}
    for node in host.nodes:
        place = host.functions.get(node.pci) if node.pci is not None else None
        if place is None or place.vendor == PCI_VENDOR or place.pci_class >> 16 not in (_DISPLAY, _ACCELERATOR):
            continue
        if not any(matches(each, node, host) for each in classes):
            kinds.setdefault((place.vendor, place.pci_class >> 8), []).append(node.path)
    for (vendor, kind), nodes in sorted(kinds.items()):
        resource = f"devices.nodeagent.io/pci-{vendor:04x}"
        lines = (
            f"- resource: {resource}",
            f'  pci_vendor: "0x{vendor:04x}"',
            f'  pci_class: "0x{kind:04x}"',
            "  group: device",
        )
        yield Proposal(use="", resource=resource, devices=tuple(sorted(nodes)), lines=lines, note=_NAME_IT)
