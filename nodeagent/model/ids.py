"""Names of things, as distinct types, so that a replica's id is never taken for a GPU's UUID."""

from typing import NewType

GpuUuid = NewType("GpuUuid", str)
"""`GPU-` and a UUID: one physical GPU, for its whole life."""

MigUuid = NewType("MigUuid", str)
"""`MIG-` and a UUID: one MIG device, until the layout changes."""

DeviceUuid = GpuUuid | MigUuid
"""The UUID of a device given to a container as a whole: a GPU or a MIG device."""

DeviceId = NewType("DeviceId", str)
"""The id by which the kubelet counts a device: its UUID, or `UUID::N` for its Nth replica."""

PciAddress = NewType("PciAddress", str)
"""`0000:1b:00.0`: four-digit domain, lower case, as sysfs names the function."""

ResourceName = NewType("ResourceName", str)
"""An extended resource, such as `nvidia.com/gpu`."""


def parse_pci_address(text: str) -> PciAddress:
    """Bring any spelling of a PCI address (`00000000:1B:00.0`, `1b:00.0`) to sysfs's own.

    Raises:
        ValueError: when the text is no PCI address.
    """
    domain_and_bus, dot, function = text.strip().lower().rpartition(".")
    parts = domain_and_bus.split(":")
    if not dot or len(parts) not in (2, 3):
        raise ValueError(f"{text!r} is no PCI address: expected domain:bus:device.function")
    domain, bus, device = (["0", *parts])[-3:]
    return PciAddress(f"{int(domain, 16):04x}:{int(bus, 16):02x}:{int(device, 16):02x}.{int(function, 16):x}")
