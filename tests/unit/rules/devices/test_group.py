"""Which devices a class has, and what they are called."""

from typing import Any

import pytest
from msgspec.structs import replace

from nodeagent.model.devices import HostDevice, HostDevices, PciPlace, UsbPlace
from nodeagent.model.ids import PciAddress, ResourceName
from nodeagent.rules.devices.group import (
    list_extra_nodes,
    list_missing_extras,
    name_key,
    parse_id,
    plan_classes,
    render_id,
    sort_key,
    split_number,
)
from nodeagent.rules.devices.match import match_path
from nodeagent.rules.ids import is_ours, parse_device_id
from tests.support.devices import make_class, make_host, make_node

THING = ResourceName("example.com/thing")
CARD = PciAddress("0000:3b:00.0")
INTEL, AMD = PciPlace(vendor=0x8086, pci_class=0x030000), PciPlace(vendor=0x1002, pci_class=0x038000)


def plan(host: HostDevices, **keys: Any) -> tuple[HostDevice, ...]:
    return plan_classes([make_class(**keys)], host)[THING].devices


def test_each_node_is_a_device_in_the_order_in_which_people_count() -> None:
    """Ten comes after two."""
    devices = plan(make_host("/dev/thing10", "/dev/thing2", "/dev/other"), nodes=["/dev/thing*"])
    assert [device.name for device in devices] == ["/dev/thing2", "/dev/thing10"]
    assert [parse_id(device.id, THING) for device in devices] == ["thing2", "thing10"]


def test_nodes_of_one_number_are_one_device() -> None:
    """One without a number belongs to none, and it is said."""
    host = make_host("/dev/a0", "/dev/b0", "/dev/a1", "/dev/actl")
    grouped = plan_classes([make_class(nodes=["/dev/[ab]*"], group="number")], host)[THING]
    assert [device.nodes for device in grouped.devices] == [("/dev/a0", "/dev/b0"), ("/dev/a1",)]
    assert [device.name for device in grouped.devices] == ["/dev/a0 (+1)", "/dev/a1"]
    assert grouped.problems == ("/dev/actl ends in no number, so that it belongs to no device; narrow `nodes`",)


def test_nodes_of_one_piece_of_hardware_are_one_device() -> None:
    """By its PCI function where it is one, else by its place in sysfs; a node without any stands alone."""
    usb = "devices/pci0000:00/0000:00:14.0/usb3/3-2/3-2:1.0"
    host = make_host(
        make_node("/dev/x0", pci="0000:3b:00.0", numa=1),
        make_node("/dev/y0", pci="0000:3b:00.0"),
        make_node("/dev/x1", hardware=usb, pci="0000:00:14.0"),
        "/dev/x2",
    )
    devices = plan(host, nodes=["/dev/[xy]*"], group="device")
    assert [device.nodes for device in devices] == [("/dev/x0", "/dev/y0"), ("/dev/x1",), ("/dev/x2",)]
    assert devices[0].numa_node == 1
    assert parse_id(devices[0].id, THING) == "0000:3b:00.0"
    assert (parse_id(devices[1].id, THING) or "").startswith("3-2:1.0".rpartition(":")[2])


def test_all_nodes_can_be_one_device() -> None:
    """As with a sound card."""
    (device,) = plan(make_host("/dev/snd/a", "/dev/snd/b"), nodes=["/dev/snd/*"], group="all")
    assert device.nodes == ("/dev/snd/a", "/dev/snd/b")


def test_everything_that_a_class_says_must_be_true() -> None:
    """Vendor, class of the function, class in sysfs."""
    host = make_host(
        make_node("/dev/dri/renderD128", pci="0000:00:02.0", sysfs_class="drm"),
        make_node("/dev/dri/renderD129", pci="0000:03:00.0", sysfs_class="drm"),
        make_node("/dev/dri/renderD130", sysfs_class="drm"),
        make_node("/dev/dri/renderD131", pci="0000:09:00.0", sysfs_class="drm"),
        f0000_00_02_0=INTEL,
        f0000_03_00_0=AMD,
    )  # fmt: skip

    def names(**keys: Any) -> list[str]:
        return [device.name[-3:] for device in plan(host, **keys)]

    assert names(pci_vendor="0x8086") == ["128"]
    assert names(pci_class="0x0380") == ["129"]
    assert names(pci_class="0x03", sysfs_class="drm") == ["128", "129"]
    assert names(sysfs_class="video4linux", nodes=["/dev/dri/*"]) == []
    assert names(sysfs_class="drm") == ["128", "129", "130", "131"]


def test_a_function_is_chosen_by_id_driver_and_parent() -> None:
    """As the SR-IOV network device plugin chooses by devices, drivers and rootDevices."""
    virtual = PciPlace(vendor=0x15B3, pci_class=0x020000, device=0x101E, driver="mlx5_core", parent=CARD)
    host = make_host(
        make_node("/dev/infiniband/uverbs0", pci="0000:3b:00.0"),
        make_node("/dev/infiniband/uverbs1", pci="0000:3b:00.2"),
        make_node("/dev/infiniband/uverbs2", pci="0000:5e:00.2"),
        f0000_3b_00_0=PciPlace(vendor=0x15B3, pci_class=0x020000, device=0x101D, driver="mlx5_core"),
        f0000_3b_00_2=virtual,
        f0000_5e_00_2=replace(virtual, parent=PciAddress("0000:5e:00.0"), driver="other"),
    )

    def names(**keys: Any) -> list[str]:
        return [device.name[-1] for device in plan(host, **keys)]

    assert names(pci_vendor="0x15B3") == ["0", "1", "2"]
    assert names(pci_vendor="0x15b3", pci_devices=["0x101E", "0x0001"]) == ["1", "2"]
    assert names(pci_drivers=["mlx5_core", "irdma"]) == ["0", "1"]
    assert names(pci_addresses=["0000:3B:00.2", "0000:5e:*"]) == ["1", "2"]
    assert names(pci_parents=["*"]) == ["1", "2"]
    assert names(pci_parents=["0000:3B:00.*", "0000:af:00.0"]) == ["1"]
    assert plan(host, pci_parents=["*"])[0].pci_addresses == ("0000:3b:00.2",)


def test_companions_are_the_nodes_of_the_same_hardware() -> None:
    """As Intel's discrete GPUs have nodes of their management engine below the same PCI function."""
    port = UsbPlace(vendor=1, product=2, port="3-2")
    host = make_host(
        make_node("/dev/dri/renderD128", pci="0000:03:00.0"),
        make_node("/dev/dri/card0", pci="0000:03:00.0"),
        make_node("/dev/mei1", pci="0000:03:00.0"),
        make_node("/dev/mei0", pci="0000:00:16.0"),
        make_node("/dev/ttyUSB0", pci="0000:03:00.0", usb=port),
        make_node("/dev/mei5", pci="0000:09:00.0", usb=port),
        make_node("/dev/alone0"),
        make_node("/dev/mei9"),
    )  # fmt: skip
    classes = {
        "/dev/dri/renderD*": ("/dev/dri/renderD128", "/dev/mei1"),
        "/dev/ttyUSB*": ("/dev/ttyUSB0", "/dev/mei5"),
        "/dev/alone*": ("/dev/alone0",),
    }
    for pattern, nodes in classes.items():
        (device,) = plan(host, nodes=[pattern], companion_nodes=["/dev/mei*"])
        assert device.nodes == nodes
    (both,) = plan(host, nodes=["/dev/dri/*"], group="device", companion_nodes=["/dev/mei*", "/dev/dri/*"])
    assert both.nodes == ("/dev/dri/card0", "/dev/dri/renderD128", "/dev/mei1")
    assert both.name == "/dev/dri/card0 (+1)"


def test_a_partition_of_a_function_has_companions_of_its_own() -> None:
    """The function is the whole GPU's."""
    place = "devices/platform/amdgpu_xcp_"
    host = make_host(
        make_node("/dev/dri/renderD129", pci="0000:03:00.0", hardware=f"{place}1"),
        make_node("/dev/dri/card1", pci="0000:03:00.0", hardware=f"{place}1"),
        make_node("/dev/dri/card2", pci="0000:03:00.0", hardware=f"{place}2"),
    )
    (device,) = plan(host, nodes=["/dev/dri/renderD*"], companion_nodes=["/dev/dri/card*"])
    assert device.nodes == ("/dev/dri/renderD129", "/dev/dri/card1")


def test_every_partition_of_an_amd_gpu_is_a_device_of_its_kind() -> None:
    """As AMD's plugin names resources with its strategy "mixed"; in one class, all are of it."""
    partitions = [
        make_node(
            f"/dev/dri/{kind}{first + number}", pci="0000:03:00.0", hardware=f"devices/platform/amdgpu_xcp_{number}"
        )
        for number in range(1, 8)
        for kind, first in (("renderD", 128), ("card", 0))
    ]
    mine = [make_node(path, pci="0000:03:00.0") for path in ("/dev/dri/renderD128", "/dev/dri/card0")]
    whole = make_node("/dev/dri/renderD160", pci="0000:23:00.0")
    host = make_host(
        *partitions, *mine, whole,
        f0000_03_00_0=replace(AMD, partition="cpx_nps4"), f0000_23_00_0=replace(AMD, partition="spx_nps1")
    )  # fmt: skip
    devices = plan_classes([make_class("", use="amd-gpu")], host)[ResourceName("amd.com/gpu")].devices
    assert len(devices) == 9
    assert len({device.id for device in devices}) == 9
    kinds = ("cpx_nps4", "spx_nps1", "dpx_nps2")
    classes = [make_class(f"amd.com/{kind}", use="amd-gpu", amd_partitions=[kind.upper()]) for kind in kinds]
    found = plan_classes(classes, host)
    assert [len(found[ResourceName(f"amd.com/{kind}")].devices) for kind in kinds] == [8, 1, 0]
    eight = found[ResourceName("amd.com/cpx_nps4")].devices
    assert all(len(device.nodes) == 2 and device.pci_addresses == ("0000:03:00.0",) for device in eight)


def test_a_node_stays_with_the_class_that_comes_first() -> None:
    classes = [make_class("a.com/one", sysfs_class="misc"), make_class("a.com/two", nodes=["/dev/x"])]
    found = plan_classes(classes, make_host(make_node("/dev/x", sysfs_class="misc")))
    assert len(found[ResourceName("a.com/one")].devices) == 1
    assert found[ResourceName("a.com/two")] == ((), (
        "/dev/x is of a.com/one and of a.com/two: it stays with a.com/one; narrow one of them",
    ))  # fmt: skip


def test_extra_nodes_must_be_there_unless_a_pattern_names_them() -> None:
    one = make_class(nodes=["/dev/x"], extra_nodes=["/dev/ctl", "/dev/rdma_c[m]"])
    assert list_extra_nodes(one, make_host("/dev/rdma_cm", "/dev/x")) == ("/dev/rdma_cm",)
    assert list_missing_extras(one, make_host(missing=("/dev/ctl", "/dev/other"))) == ("/dev/ctl",)


@pytest.mark.parametrize(
    ("path", "pattern", "is_match"),
    [("/dev/a", "/dev/*", True), ("/dev/a/b", "/dev/*", False), ("/dev/a1", "/dev/a[0-9]", True)],
)
def test_a_wildcard_ends_at_a_slash(path: str, pattern: str, *, is_match: bool) -> None:
    """As in a shell."""
    assert match_path(path, pattern) is is_match


def test_names_are_plain_and_never_two_of_one() -> None:
    """What file systems, runtimes and labels would not take is replaced, and what it was is hashed."""
    assert name_key("kvm", is_path=True) == "kvm"
    assert name_key("net/tun", is_path=True) == "net:tun"
    assert name_key("/tmp/x/y", is_path=True) == "tmp:x:y"
    odd = ["a:b", "a b", "é", "-", "x/", "a,b"]
    names = [name_key(key, is_path=True) for key in odd]
    assert len({*names, "a:b"}) == len(odd) + 1
    assert all(name.strip("_.-:") == name and name.isascii() and " " not in name for name in names)
    assert name_key("0000:3b:00.0", is_path=False) == "0000:3b:00.0"


def test_ids_of_two_resources_are_never_the_same() -> None:
    """Also where their last words are; and they are known as ours, with a share and without."""
    one, other = render_id("a.com/gpu", "0"), render_id("b.com/gpu", "0")
    assert one != other
    assert is_ours(one)
    assert parse_id(other, "a.com/gpu") is None
    assert parse_device_id(f"{render_id('a.com/gpu', 'net:tun')}::3") == (render_id("a.com/gpu", "net:tun"), 3)


def test_a_number_is_what_a_name_ends_in() -> None:
    assert split_number("/dev/x12") == ("/dev/x", 12)
    assert split_number("/dev/3/x") == ("/dev/3/x", None)
    assert sort_key("/dev/x") < sort_key("/dev/x0")
