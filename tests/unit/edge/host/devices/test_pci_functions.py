"""PCI functions in a tree made like sysfs.

The files are those of the kernel's Documentation/ABI/testing/sysfs-bus-pci, and the amdgpu driver's own.
"""

from pathlib import Path

from nodeagent.edge.host.devices.pci_functions import find_addresses, read_functions
from nodeagent.model.devices import HostNode, PciPlace
from nodeagent.model.ids import PciAddress

CARD, VIRTUAL, GPU = PciAddress("0000:3b:00.0"), PciAddress("0000:3b:00.2"), PciAddress("0000:c0:00.0")


def plant(sys: Path, address: str, links: dict[str, str], **files: str) -> None:
    place = sys / "devices/pci0000:3a/0000:3a:00.0" / address
    place.mkdir(parents=True)
    for name, text in files.items():
        (place / name).write_text(f"{text}\n")
    for name, target in links.items():
        (place / name).symlink_to(target)
    devices = sys / "bus/pci/devices"
    devices.mkdir(parents=True, exist_ok=True)
    (devices / address).symlink_to(place)


def test_what_sysfs_says_of_a_virtual_function(tmp_path: Path) -> None:
    """Driver, physical function and IOMMU group are links, whose last words count."""
    links = {
        "driver": "../../../../bus/pci/drivers/vfio-pci",
        "physfn": f"../{CARD}",
        "iommu_group": "../../../../kernel/iommu_groups/42",
    }
    files = {"class": "0x020000", "vendor": "0x15b3", "device": "0x101e", "numa_node": "1"}
    plant(tmp_path, VIRTUAL, links, **files)
    plant(tmp_path, CARD, {}, **{**files, "device": "0x101d", "numa_node": "-1"})
    chain = ("pci0000:3a", "0000:3a:00.0")
    found = read_functions(tmp_path, (), is_all=True)
    assert found[VIRTUAL] == PciPlace(
        vendor=0x15B3,
        pci_class=0x020000,
        device=0x101E,
        driver="vfio-pci",
        parent=CARD,
        iommu_group="42",
        numa_node=1,
        chain=(*chain, VIRTUAL),
    )
    assert found[CARD] == PciPlace(vendor=0x15B3, pci_class=0x020000, device=0x101D, chain=(*chain, CARD))


def test_only_functions_of_nodes_are_read_unless_all_are_wanted(tmp_path: Path) -> None:
    """And GPUs of NVIDIA, for the distance; an entry without a vendor is no function."""
    plant(tmp_path, CARD, {}, vendor="0x15b3")
    plant(tmp_path, VIRTUAL, {}, vendor="0x15b3")
    plant(tmp_path, GPU, {}, vendor="0x10de")
    plant(tmp_path, "0000:00:00.0", {})
    assert read_functions(tmp_path, (), is_all=False) == {}
    assert list(read_functions(tmp_path, [HostNode(path="/dev/x", pci=CARD)], is_all=False)) == [CARD, GPU]
    assert list(read_functions(tmp_path, (), is_all=True)) == [CARD, VIRTUAL, GPU]


def test_the_partitioning_of_an_amd_gpu_is_one_word(tmp_path: Path) -> None:
    """As AMD's device plugin joins the two files for its resources; without one of them a GPU has no partitions."""
    words = {"current_compute_partition": "CPX", "current_memory_partition": "NPS4"}
    plant(tmp_path, GPU, {}, vendor="0x1002", **words)
    plant(tmp_path, CARD, {}, vendor="0x1002", current_compute_partition="SPX")
    plant(tmp_path, VIRTUAL, {}, vendor="0x15b3", **words)
    found = read_functions(tmp_path, (), is_all=True)
    assert {address: place.partition for address, place in found.items()} == {GPU: "cpx_nps4", CARD: "", VIRTUAL: ""}


def test_the_functions_on_the_way_to_a_directory() -> None:
    assert find_addresses("/sys/devices/pci0000:3a/0000:3a:00.0/10000:01:00.2/net") == ["0000:3a:00.0", "10000:01:00.2"]
