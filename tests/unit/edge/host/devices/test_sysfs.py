"""NVIDIA's functions on the PCI bus."""

import os
from pathlib import Path

from nodeagent.edge.host.devices.sysfs import read_gpu_functions
from nodeagent.edge.host.files.pseudo_file import (
    list_names,
    read_attribute,
    read_link_name,
    read_number,
    read_raw_attribute,
)
from nodeagent.model.driver import PciFunction
from nodeagent.model.ids import PciAddress
from tests.unit.edge.host.tree import HostTree


def test_gpus_are_found_in_order_with_their_driver(host: HostTree) -> None:
    """Both display classes count, each with device, driver and NUMA node; -1 is no node."""
    host.add_function("0000:43:00.0", pci_class="0x030000", device="0x26b9", numa_node="-1")
    host.add_function("0000:1b:00.0", driver="nvidia", numa_node="1")
    assert read_gpu_functions(host.sys) == (
        PciFunction(address=PciAddress("0000:1b:00.0"), device_id=0x2330, bound_driver="nvidia", numa_node=1),
        PciFunction(address=PciAddress("0000:43:00.0"), device_id=0x26B9),
    )


def test_others_are_left_out(host: HostTree) -> None:
    """Other vendors, other classes, virtual functions and names that are no address are not this node's GPUs."""
    host.add_function("0000:c1:00.0", pci_class="0x068000", device="0x22a3")
    host.add_function("0000:00:02.0", vendor="0x8086", pci_class="0x030000")
    host.add_function("0000:1b:00.1", pci_class="0x040300")
    (host.add_function("0000:1b:00.4") / "physfn").mkdir()
    host.add_function("odd")
    host.write("sys/bus/pci/devices/0000:2b:00.0/vendor", "garbage")
    assert read_gpu_functions(host.sys) == ()


def test_host_without_a_bus_has_no_functions(host: HostTree) -> None:
    """No sysfs, no functions, no error."""
    assert read_gpu_functions(host.sys / "absent") == ()


def test_attribute_longer_than_a_page_is_read_whole() -> None:
    """The kernel gives long files of /proc by the page; all pages are taken, up to the limit."""
    memory_map = Path("/proc/self/smaps")
    assert len(read_attribute(memory_map)) > 10_000
    assert len(read_raw_attribute(memory_map, limit_bytes=9000)) == 9000


def test_unreadable_attributes_are_empty(tmp_path: Path) -> None:
    """What is not there, is a directory, or is a pipe without a writer reads as empty, at once."""
    os.mkfifo(tmp_path / "pipe")
    assert [read_attribute(tmp_path / name) for name in ("absent", ".", "pipe")] == ["", "", ""]
    assert read_number(tmp_path / "absent") is None
    assert read_link_name(tmp_path / "absent") == ""
    assert list_names(tmp_path / "absent") == ()
