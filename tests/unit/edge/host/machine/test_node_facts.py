"""What is read of a node that is not its GPUs."""

from pathlib import Path

import pytest

from nodeagent.edge.host.machine.node_facts import parse_vgpu, read_node_facts
from nodeagent.model.ids import PciAddress
from nodeagent.model.labels import NodeFacts, VendorFunction, VgpuGuest

RECORD = bytes([0, 22]) + b"550.54.16\0" + b"r550_40\0\0\0"


def config_space(*capabilities: bytes, flag: int = 0x10) -> bytes:
    """A configuration space with these capabilities in a chain; each is given without its next pointer."""
    space = bytearray(256)
    space[0x06] = flag
    pointer, place = 0x34, 0x40
    for capability in capabilities:
        space[pointer] = place
        whole = bytes([capability[0], 0]) + capability[1:]
        space[place : place + len(whole)] = whole
        pointer, place = place + 1, place + len(whole)
    return bytes(space)


def vendor_specific(records: bytes) -> bytes:
    return bytes([0x09, 5 + len(records)]) + b"VF" + records


@pytest.mark.parametrize(
    ("config", "guest"),
    [
        (b"\xff" * 64, None),
        (config_space(flag=0), VgpuGuest()),
        (config_space(), VgpuGuest()),
        (config_space(bytes([0x10, 0, 0])), VgpuGuest()),
        (config_space(bytes([0x09, 5]) + b"XX"), VgpuGuest()),
        (
            config_space(bytes([0x10, 0, 0]), vendor_specific(bytes([5, 3, 9]) + RECORD)),
            VgpuGuest(present=True, host_driver_version="550.54.16", host_driver_branch="r550_40"),
        ),
        (config_space(vendor_specific(bytes([5, 0]))), VgpuGuest(present=True)),
        (config_space(vendor_specific(b"")), VgpuGuest(present=True)),
    ],
)
def test_the_vgpu_record_is_found(config: bytes, guest: VgpuGuest | None) -> None:
    """A guest names its host's driver; a short, empty or looping space is survived."""
    assert parse_vgpu(config) == guest


def test_a_loop_of_capabilities_ends() -> None:
    """A chain that leads back to itself is walked once."""
    space = bytearray(config_space(bytes([0x10, 0, 0])))
    space[0x41] = 0x40
    assert parse_vgpu(bytes(space)) == VgpuGuest()


def make_tree(root: Path, *, config: bytes = b"\0" * 256) -> None:
    for name, vendor, pci_class in (
        ("0000:17:00.0", "0x10de", "0x030200"),
        ("0000:18:00.0", "0x8086", "0x020000"),
        ("odd", "0x10de", "0x030000"),
    ):
        place = root / "sys/bus/pci/devices" / name
        place.mkdir(parents=True)
        (place / "vendor").write_text(vendor)
        (place / "class").write_text(pci_class)
        (place / "config").write_bytes(config)
    (root / "proc/sys/kernel").mkdir(parents=True)
    (root / "proc/sys/kernel/osrelease").write_text("6.8.0-51-generic\n")
    (root / "etc").mkdir()
    (root / "etc/os-release").write_text('# a comment\nID=ubuntu\nVERSION_ID="24.04"\nNAME=\'unfinished\n')
    (root / "machine").write_text(" DGX H100 \n")


def read(root: Path) -> NodeFacts:
    return read_node_facts(
        machine_type_file=root / "machine", proc_root=root / "proc", sys_root=root / "sys", host_root=root
    )


def test_facts_are_read_from_the_host(tmp_path: Path) -> None:
    """Firmware, kernel, distribution and NVIDIA's functions, each from its own place."""
    make_tree(tmp_path)
    facts = read(tmp_path)
    assert (facts.machine_type, facts.kernel_release) == ("DGX H100", "6.8.0-51-generic")
    assert (facts.os_id, facts.os_version_id) == ("ubuntu", "24.04")
    assert facts.functions == (VendorFunction(address=PciAddress("0000:17:00.0"), pci_class="0302"),)
    assert facts.vgpu == VgpuGuest()


def test_a_guest_is_recognised(tmp_path: Path) -> None:
    """One vGPU among the functions makes the node a guest."""
    make_tree(tmp_path, config=config_space(vendor_specific(RECORD)))
    vgpu = read(tmp_path).vgpu
    assert vgpu is not None
    assert vgpu.host_driver_branch == "r550_40"


def test_what_cannot_be_read_is_empty(tmp_path: Path) -> None:
    """A bare directory is a node of which nothing is known; a short configuration space hides the vGPU question."""
    facts = read(tmp_path)
    assert (facts.machine_type, facts.kernel_release, facts.os_id, facts.functions) == ("", "", "", ())
    make_tree(tmp_path, config=b"\0" * 64)
    assert read(tmp_path).vgpu is None
