"""PCI functions of any vendor as sysfs shows them: ids, bound driver, parent, IOMMU group, place on the bus.

Owns the reading of functions for a scan. Refuses to open a device.
"""

import os
import re
from collections.abc import Iterable
from pathlib import Path
from typing import Final

from nodeagent.edge.host.devices.gpu_arrival import NVIDIA_VENDOR
from nodeagent.edge.host.devices.sysfs import PCI_DEVICES
from nodeagent.edge.host.files.pseudo_file import list_names, read_attribute, read_link_name, read_number
from nodeagent.model.devices import HostNode, PciPlace
from nodeagent.model.ids import PciAddress

AMD_VENDOR: Final = 0x1002
_ADDRESS: Final = re.compile(r"[0-9a-f]{4,8}:[0-9a-f]{2}:[0-9a-f]{2}\.[0-7]")
_ROOT: Final = re.compile(r"pci[0-9a-f]{4,8}:[0-9a-f]{2}")


def find_addresses(place: str) -> list[str]:
    """The PCI functions on the way to a directory of sysfs."""
    return [part for part in place.split("/") if _ADDRESS.fullmatch(part)]


def read_functions(sys_root: Path, nodes: Iterable[HostNode], *, is_all: bool) -> dict[PciAddress, PciPlace]:
    """The PCI functions of the nodes, and NVIDIA's GPUs, for the distance to them; or all functions."""
    wanted = {node.pci for node in nodes if node.pci is not None}
    if not wanted and not is_all:
        return {}
    found = {}
    for name in list_names(sys_root / PCI_DEVICES):
        place = sys_root / PCI_DEVICES / name
        vendor = read_number(place / "vendor")
        if vendor is not None and (is_all or name in wanted or vendor == NVIDIA_VENDOR):
            found[PciAddress(name)] = _read_function(place, vendor)
    return found


def _read_function(place: Path, vendor: int) -> PciPlace:
    chain = [part for part in os.path.realpath(place).split("/") if _ADDRESS.fullmatch(part) or _ROOT.fullmatch(part)]
    parent = read_link_name(place / "physfn")
    numa_node = read_number(place / "numa_node")
    return PciPlace(
        vendor=vendor,
        pci_class=read_number(place / "class") or 0,
        device=read_number(place / "device") or 0,
        driver=read_link_name(place / "driver"),
        parent=PciAddress(parent) if parent else None,
        iommu_group=read_link_name(place / "iommu_group"),
        partition=_read_partition(place) if vendor == AMD_VENDOR else "",
        # -1 stands for an unknown node.
        numa_node=numa_node if numa_node is not None and numa_node >= 0 else None,
        chain=tuple(chain),
    )


def _read_partition(place: Path) -> str:
    parts = [read_attribute(place / f"current_{kind}_partition").lower() for kind in ("compute", "memory")]
    return "_".join(parts) if all(parts) else ""
