"""Device nodes and classes of devices for tests."""

from collections.abc import Mapping
from pathlib import PurePosixPath
from types import MappingProxyType
from typing import Any

from nodeagent.config.knobs import Findings, Place
from nodeagent.config.sections.devices import ClassKind, DeviceClass
from nodeagent.config.sections.devices_ready import plant
from nodeagent.config.tree import DEFAULT
from nodeagent.model.devices import HostDevices, HostNode, PciPlace, UsbPlace
from nodeagent.model.ids import PciAddress


def make_class(resource: str = "example.com/thing", **keys: Any) -> DeviceClass:
    """A class as a configuration with these keys has it."""
    said = {"resource": resource, **keys} if resource else keys
    findings = Findings()
    found = ClassKind(DeviceClass).read(plant(said, DEFAULT), Place(findings))
    assert not findings.problems, findings.problems
    return found


def make_node(
    path: str,
    pci: str = "",
    sysfs_class: str = "",
    hardware: str = "",
    numa: int | None = None,
    usb: UsbPlace | None = None,
) -> HostNode:
    """A node; one with a PCI function belongs to it."""
    name = PurePosixPath(path).name
    return HostNode(
        path=path,
        sysfs=f"devices/virtual/{name}",
        sysfs_class=sysfs_class,
        hardware=hardware or (f"devices/pci0000:00/{pci}" if pci else ""),
        pci=PciAddress(pci) if pci else None,
        usb=usb,
        numa_node=numa,
    )


def make_host(
    *nodes: HostNode | str,
    missing: tuple[str, ...] = (),
    links: Mapping[str, str] = MappingProxyType({}),
    **functions: PciPlace,
) -> HostDevices:
    """What a look found; functions by address, with underscores for its colons and its dot."""
    found = sorted((make_node(each) if isinstance(each, str) else each for each in nodes), key=lambda one: one.path)
    places = {PciAddress(f"{key[1:5]}:{key[6:8]}:{key[9:11]}.{key[12]}"): place for key, place in functions.items()}
    return HostDevices(nodes=tuple(found), functions=places, links=links, missing=missing)
