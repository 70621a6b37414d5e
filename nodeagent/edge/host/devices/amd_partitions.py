"""Partitions of AMD's GPUs: the PCI function of a partition that has none of its own in sysfs.

The first partition of a GPU is the GPU's PCI function; the amdgpu driver makes a platform device for each further one,
and the topology of its compute driver says on which function the partition is. Owns the reading of that topology.
"""

import re
from collections.abc import Iterable
from pathlib import Path
from typing import Final

from msgspec.structs import replace

from nodeagent.edge.host.devices.sysfs import PCI_DEVICES
from nodeagent.edge.host.files.pseudo_file import list_names, read_attribute, read_number
from nodeagent.model.devices import HostNode
from nodeagent.model.ids import PciAddress

_TOPOLOGY: Final = Path("class/kfd/kfd/topology/nodes")
_PLACE: Final = re.compile(r"(.*/amdgpu_xcp_[0-9]+)(?:/.*)?")
_RENDER: Final = "renderD"


def is_partition(place: str) -> bool:
    """Whether a directory of sysfs is at a partition without a PCI function of its own."""
    return _PLACE.fullmatch(place) is not None


def tie_partitions(sys_root: Path, nodes: Iterable[HostNode]) -> list[HostNode]:
    """The nodes, those of partitions with their GPUs' functions; a partition that the topology lacks is in no use."""
    nodes = list(nodes)
    if not any(is_partition(node.sysfs) for node in nodes):
        return nodes
    functions = _read_functions(sys_root)
    return [_tie(sys_root, node, functions) for node in nodes]


def _tie(sys_root: Path, node: HostNode, functions: dict[int, PciAddress]) -> HostNode:
    place = _PLACE.fullmatch(node.sysfs)
    if place is None:
        return node
    minors = [
        int(name.removeprefix(_RENDER))
        for name in list_names(sys_root / place.group(1) / "drm")
        if name.startswith(_RENDER)
    ]
    function = next((functions[minor] for minor in minors if minor in functions), None)
    if function is None:
        return node
    numa_node = read_number(sys_root / PCI_DEVICES / function / "numa_node")
    # -1 stands for an unknown node.
    return replace(node, pci=function, numa_node=numa_node if numa_node is not None and numa_node >= 0 else None)


def _read_functions(sys_root: Path) -> dict[int, PciAddress]:
    """By minor number of the render node, the PCI function of each GPU or partition in the topology."""
    found = {}
    for name in list_names(sys_root / _TOPOLOGY):
        lines = (line.split() for line in read_attribute(sys_root / _TOPOLOGY / name / "properties").splitlines())
        said = {line[0]: int(line[1]) for line in lines if len(line) > 1 and line[1].isdecimal()}
        location = said.get("location_id", 0)
        # The kernel adds the partition's number to the location: above its 28th bit, or in the bits of the function.
        address = PciAddress(f"{said.get('domain', 0):04x}:{location >> 8 & 0xFF:02x}:{location >> 3 & 0x1F:02x}.0")
        if minor := said.get("drm_render_minor"):
            found[minor] = address
    return found
