"""Partitions of an MI300X in a tree made like sysfs.

Files and names are those from which AMD's k8s-device-plugin finds partitions; the forms of the location are those of
the kernel's amdkfd, which has put the partition's number above bit 28, and before that in the bits of the function.
"""

from pathlib import Path

import pytest

from nodeagent.edge.host.devices.amd_partitions import is_partition, tie_partitions
from nodeagent.model.devices import HostNode
from nodeagent.model.ids import PciAddress

GPU = PciAddress("0001:0c:00.0")


def plant(sys: Path, minors: tuple[int, ...], locations: tuple[int, ...], numa: str = "1") -> list[HostNode]:
    """The nodes of a GPU whose first partition is its function, and the others platform devices."""
    gpu = sys / "bus/pci/devices" / GPU
    gpu.mkdir(parents=True)
    (gpu / "numa_node").write_text(f"{numa}\n")
    topology = sys / "class/kfd/kfd/topology/nodes"
    for number, (minor, location) in enumerate(zip((0, *minors), (0, *locations), strict=True)):
        (topology / str(number)).mkdir(parents=True)
        said = {"cpu_cores_count": 0, "domain": 1, "location_id": location, "drm_render_minor": minor, "unique_id": 7}
        text = "\n".join(f"{key} {value}" for key, value in said.items())
        (topology / str(number) / "properties").write_text(f"{text}\nodd\n")
    nodes = [HostNode(path=f"/dev/dri/renderD{minors[0]}", sysfs=f"devices/pci0001:0b/{GPU}/drm/renderD", pci=GPU)]
    for number, minor in enumerate(minors[1:], start=1):
        place = f"devices/platform/amdgpu_xcp_{number}"
        for name in (f"card{number}", f"renderD{minor}"):
            (sys / place / "drm" / name).mkdir(parents=True)
            nodes.append(HostNode(path=f"/dev/dri/{name}", sysfs=f"{place}/drm/{name}", hardware=place))
    return nodes


@pytest.mark.parametrize("shift", [28, 0])
def test_every_partition_is_tied_to_its_gpu(tmp_path: Path, shift: int) -> None:
    """With card and render node, and with the GPU's NUMA node; what is no partition stays as it is."""
    minors = tuple(range(128, 136))
    nodes = plant(tmp_path, minors, tuple(0x0C00 | number << shift for number in range(8)))
    other = HostNode(path="/dev/kvm", sysfs="devices/virtual/misc/kvm")
    tied = tie_partitions(tmp_path, [*nodes, other])
    assert len(tied) == 1 + 7 * 2 + 1
    assert {node.pci for node in tied[:-1]} == {GPU}
    assert {node.numa_node for node in tied[1:-1]} == {1}
    assert (tied[0], tied[-1]) == (nodes[0], other)


def test_a_partition_that_the_topology_lacks_is_left_alone(tmp_path: Path) -> None:
    """The driver keeps platform devices for partitions that are not there now."""
    nodes = plant(tmp_path, (128, 129), (0x0C00, 0x0C00), numa="-1")
    (tmp_path / "devices/platform/amdgpu_xcp_9/drm/renderD150").mkdir(parents=True)
    unused = HostNode(path="/dev/dri/renderD150", sysfs="devices/platform/amdgpu_xcp_9/drm/renderD150")
    tied = tie_partitions(tmp_path, [*nodes, unused])
    assert tied[-1] == unused
    assert (tied[1].pci, tied[1].numa_node) == (GPU, None)


def test_without_partitions_no_topology_is_read(tmp_path: Path) -> None:
    node = HostNode(path="/dev/kvm", sysfs="devices/virtual/misc/kvm")
    assert tie_partitions(tmp_path / "none", [node]) == [node]


@pytest.mark.parametrize(
    ("place", "is_one"),
    [
        ("devices/platform/amdgpu_xcp_12/drm/renderD140", True),
        ("devices/platform/amdgpu_xcp_1", True),
        ("devices/platform/amdgpu_xcp", False),
        ("devices/pci0000:00/0000:03:00.0/drm/card0", False),
    ],
)
def test_a_partition_is_known_by_its_place(place: str, *, is_one: bool) -> None:
    assert is_partition(place) is is_one
