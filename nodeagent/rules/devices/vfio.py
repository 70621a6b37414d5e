"""IOMMU groups of a class, for programs that drive PCI functions by themselves through VFIO.

Owns the rule of the kernel that a group is given whole: a function bound to another driver keeps its group back.
"""

from collections.abc import Iterator
from typing import Final, NamedTuple

from nodeagent.config.sections.devices import DeviceClass
from nodeagent.model.devices import HostDevices, PciPlace
from nodeagent.model.ids import PciAddress
from nodeagent.rules.devices.match import matches_function

_VFIO: Final = ("vfio-pci", "vfio_pci")
"""The endings of the names of VFIO's drivers: vfio-pci, mlx5_vfio_pci."""
_HARMLESS: Final = ("", "pci-stub", "pcieport")
"""No driver, or a driver that leaves DMA alone: the kernel lets a group have them."""


class VfioGroup(NamedTuple):
    """An IOMMU group with a function of a class."""

    path: str
    functions: tuple[PciAddress, ...]
    """The functions bound to VFIO."""
    problem: str = ""
    """Why the group is not given."""


def find_groups(device_class: DeviceClass, host: HostDevices) -> Iterator[VfioGroup]:
    """The groups with a function of the class that is bound to VFIO, in the order of their first functions."""
    paths = {node.path for node in host.nodes}
    members: dict[str, dict[PciAddress, PciPlace]] = {}
    for address, place in sorted(host.functions.items()):
        members.setdefault(place.iommu_group, {})[address] = place
    seen: set[str] = set()
    for address, place in sorted(host.functions.items()):
        group = place.iommu_group
        if not _is_vfio(place) or not matches_function(device_class, address, place) or group in seen:
            continue
        if not group:
            yield VfioGroup("", (address,), f"{address} is in no IOMMU group; switch the IOMMU on")
            continue
        seen.add(group)
        yield _judge_group(group, members[group], paths)


def _judge_group(group: str, members: dict[PciAddress, PciPlace], paths: set[str]) -> VfioGroup:
    path = f"/dev/vfio/{group}"
    functions = tuple(address for address, place in members.items() if _is_vfio(place))
    strangers = [
        f"{address} to {place.driver}"
        for address, place in members.items()
        if not _is_vfio(place) and place.driver not in _HARMLESS
    ]
    problem = ""
    if strangers:
        problem = f"{path} is not given, for in its IOMMU group are bound {', '.join(strangers)}; bind all to vfio-pci"
    elif path not in paths:
        problem = f"{functions[0]} is bound to {members[functions[0]].driver}, and {path} is not there"
    return VfioGroup(path, functions, problem)


def _is_vfio(place: PciPlace) -> bool:
    return place.driver.endswith(_VFIO)
