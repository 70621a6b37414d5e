"""USB devices as devices of a class, as generic-device-plugin gives them by vendor, product and serial number."""

from typing import Any

from nodeagent.model.devices import HostDevice, HostDevices, HostNode, UsbPlace
from nodeagent.model.ids import ResourceName
from nodeagent.rules.devices.group import Grouped, parse_id, plan_classes
from tests.support.devices import make_class, make_host, make_node

THING = ResourceName("example.com/thing")
KEY = {"usb_vendor": "0x1209", "usb_product": "0x000F"}


def plug(node: str, port: str, serial: str = "", product: int = 0x000F) -> HostNode:
    """A node of a device that is plugged in."""
    return make_node(node, usb=UsbPlace(vendor=0x1209, product=product, port=port, serial=serial))


def plan(host: HostDevices, **keys: Any) -> Grouped:
    return plan_classes([make_class(**keys)], host)[THING]


def list_names(devices: tuple[HostDevice, ...]) -> list[str | None]:
    return [parse_id(device.id, THING) for device in devices]


def test_a_device_is_chosen_by_vendor_and_product() -> None:
    """By its own node alone, unless the class names others."""
    host = make_host(
        plug("/dev/bus/usb/003/005", "3-2"),
        plug("/dev/ttyUSB0", "3-2"),
        plug("/dev/bus/usb/003/006", "3-1", product=0x0010),
        make_node("/dev/bus/usb/001/001", usb=UsbPlace(vendor=0x1D6B, product=0x000F, port="usb1")),
        "/dev/bus/usb/009/009",
    )
    assert [device.nodes for device in plan(host, **KEY).devices] == [("/dev/bus/usb/003/005",)]
    assert [device.name for device in plan(host, usb_vendor="0x1209").devices] == [
        "/dev/bus/usb/003/005", "/dev/bus/usb/003/006"
    ]  # fmt: skip
    assert list_names(plan(host, nodes=["/dev/ttyUSB*"], **KEY).devices) == ["ttyUSB0"]
    assert plan(host, sysfs_class="tty", **KEY).devices == ()


def test_a_device_that_is_plugged_in_again_is_the_same_one() -> None:
    """Its node has another number; its port is the same, and so is its serial number in any port."""
    before, after = make_host(plug("/dev/bus/usb/003/005", "3-2", "A1")), plug("/dev/bus/usb/003/017", "3-2", "A1")
    assert list_names(plan(before, **KEY).devices) == list_names(plan(make_host(after), **KEY).devices) == ["usb-3-2"]
    elsewhere = make_host(plug("/dev/bus/usb/001/004", "1-1.4", "A1"))
    for host in (before, elsewhere):
        assert list_names(plan(host, usb_serials=["A1", "B2"]).devices) == ["A1"]
        assert plan(host, usb_serials=["B2"]).devices == ()
    assert list_names(plan(elsewhere, **KEY).devices) == ["usb-1-1.4"]
    assert list_names(plan(elsewhere, nodes=["/dev/bus/usb/*/*"]).devices) == ["usb-1-1.4"]


def test_all_nodes_of_a_device_are_one_where_the_class_says_so() -> None:
    host = make_host(plug("/dev/bus/usb/003/005", "3-2"), plug("/dev/ttyUSB0", "3-2"), plug("/dev/ttyUSB1", "3-4"))
    devices = plan(host, nodes=["/dev/ttyUSB*", "/dev/bus/usb/*/*"], group="device", **KEY).devices
    assert [device.nodes for device in devices] == [("/dev/bus/usb/003/005", "/dev/ttyUSB0"), ("/dev/ttyUSB1",)]
    assert len(plan(host, nodes=["/dev/*"], usb_serials=["A1"], group="all").devices) == 0
    assert len(plan(host, nodes=["/dev/tty*"], group="all", **KEY).devices) == 1


def test_two_devices_of_one_serial_number_are_told_of() -> None:
    """The first keeps the name, and the second is nobody's until the class chooses otherwise."""
    host = make_host(plug("/dev/bus/usb/003/005", "3-2", "A1"), plug("/dev/bus/usb/003/006", "3-4", "A1"))
    grouped = plan(host, usb_serials=["A1"])
    assert [device.nodes for device in grouped.devices] == [("/dev/bus/usb/003/005",)]
    assert grouped.problems == (
        "/dev/bus/usb/003/006 has the serial number of /dev/bus/usb/003/005; choose them by vendor and product",
    )
    assert len(plan(host, usb_serials=["A1"], group="all").devices) == 1
