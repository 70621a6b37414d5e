"""USB devices as sysfs shows them: ids, serial number and port.

Owns the reading of the USB device above a node. Refuses to open a device.
"""

import os
from pathlib import Path

from nodeagent.edge.host.files.pseudo_file import read_attribute
from nodeagent.model.devices import UsbPlace


def find_usb(place: str, base: str) -> UsbPlace | None:
    """The USB device nearest above a directory of sysfs, or at it."""
    if "/usb" not in place:
        return None
    while place.startswith(f"{base}/"):
        if (found := _read_place(Path(place))) is not None:
            return found
        place = os.path.dirname(place)  # noqa: PTH120  # text to text
    return None


def _read_place(place: Path) -> UsbPlace | None:
    """The device whose directory it is; interfaces and functions of other buses have no such files."""
    try:
        vendor, product = (int(read_attribute(place / name), 16) for name in ("idVendor", "idProduct"))
    except ValueError:
        return None
    return UsbPlace(vendor=vendor, product=product, port=place.name, serial=read_attribute(place / "serial"))
