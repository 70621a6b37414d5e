"""USB devices in a tree made like sysfs: the files of the kernel's Documentation/ABI/testing/sysfs-bus-usb."""

from pathlib import Path

from nodeagent.edge.host.devices.usb_places import find_usb
from nodeagent.model.devices import UsbPlace

PORT = "devices/pci0000:00/0000:00:14.0/usb3/3-2"


def plant(sys: Path, **files: str) -> None:
    place = sys / PORT
    (place / "3-2:1.0/tty/ttyUSB0").mkdir(parents=True)
    for name, text in files.items():
        (place / name).write_text(f"{text}\n")


def test_the_device_nearest_above_is_found(tmp_path: Path) -> None:
    """From its own directory, and from that of a node of one of its interfaces."""
    plant(tmp_path, idVendor="1209", idProduct="000f", serial="A 1")
    known = UsbPlace(vendor=0x1209, product=0x000F, port="3-2", serial="A 1")
    for below in ("", "/3-2:1.0/tty/ttyUSB0"):
        assert find_usb(f"{tmp_path}/{PORT}{below}", str(tmp_path)) == known


def test_a_device_may_have_no_serial_number_and_a_node_no_device(tmp_path: Path) -> None:
    plant(tmp_path, idVendor="1209", idProduct="000f")
    found = find_usb(f"{tmp_path}/{PORT}", str(tmp_path))
    assert found is not None
    assert found.serial == ""
    assert find_usb(f"{tmp_path}/devices/pci0000:00/0000:00:14.0/usb3", str(tmp_path)) is None
    assert find_usb(f"{tmp_path}/devices/virtual/misc/kvm", str(tmp_path)) is None
