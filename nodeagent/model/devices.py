"""Devices of any vendor: what a node shows of them, and what is given of them to containers.

What the kernel shows comes as `HostDevices`, without any meaning; what it means by the classes of the configuration is
`DeviceTable`.
"""

from collections.abc import Mapping
from enum import StrEnum

from nodeagent.model.ids import DeviceId, PciAddress, ResourceName
from nodeagent.model.values import Value


class ScanWish(Value, frozen=True):
    """What a look at the host is for."""

    patterns: tuple[str, ...] = ()
    """Paths of nodes, with wildcards or without."""
    sysfs_classes: tuple[str, ...] = ()
    """Classes of sysfs of which all nodes are wanted."""
    is_pci: bool = False
    """Whether all nodes of PCI functions are wanted, whatever they are called."""


class HostNode(Value, frozen=True):
    """One device node of the host, and what sysfs says of it."""

    path: str
    """As the host names it."""
    is_block: bool = False
    number: tuple[int, int] = (0, 0)
    """Major and minor."""
    sysfs: str = ""
    """Its own directory below /sys, without links; empty where sysfs does not know it."""
    sysfs_class: str = ""
    hardware: str = ""
    """The directory below /sys of the piece of hardware that it belongs to; empty where there is none."""
    pci: PciAddress | None = None
    """The nearest PCI function above it."""
    numa_node: int | None = None


class PciPlace(Value, frozen=True):
    """A function on the PCI bus."""

    vendor: int
    pci_class: int
    """Class, subclass and interface: 0x030000."""
    device: int = 0
    chain: tuple[str, ...] = ()
    """From the root of the bus to the function: what two functions share of it tells how near they are."""


class HostDevices(Value, frozen=True):
    """What one look at /dev and sysfs found."""

    nodes: tuple[HostNode, ...] = ()
    """In the order of their paths."""
    functions: Mapping[PciAddress, PciPlace] = {}
    missing: tuple[str, ...] = ()
    """Paths without wildcards that were looked for and are not there, or are no device nodes."""


class Standing(StrEnum):
    """Whether a device can be given to containers."""

    HEALTHY = "healthy"
    UNHEALTHY = "unhealthy"
    GONE = "gone"
    """Its nodes are not there."""


class HostDevice(Value, frozen=True):
    """One device of a class: one or several nodes."""

    id: DeviceId
    """Without the number of a share."""
    name: str
    """What people call it: its path, or what its nodes have in common."""
    nodes: tuple[str, ...]
    """As the host names them, in the order in which they are counted."""
    sysfs: str = ""
    """Of its first node."""
    pci: PciAddress | None = None
    numa_node: int | None = None
    standing: Standing = Standing.HEALTHY
    reason: str = ""
    """Why it is not healthy."""


class DeviceClassState(Value, frozen=True):
    """One class, as it stands."""

    resource: ResourceName
    replicas: int = 1
    devices: tuple[HostDevice, ...] = ()
    """Those that are there, and those that are gone and that somebody holds, or that were there since the start."""
    problems: tuple[str, ...] = ()
    """What keeps nodes from being given, a sentence each."""

    @property
    def healthy_count(self) -> int:
        """How many devices can be given."""
        return sum(each.standing is Standing.HEALTHY for each in self.devices)


class DeviceTable(Value, frozen=True):
    """State: the devices of other kinds than NVIDIA's GPUs, by class."""

    classes: tuple[DeviceClassState, ...] = ()
    """In the order of the configuration."""

    def find(self, device: str) -> HostDevice | None:
        """The device of this id, whichever class it is of."""
        return next((one for each in self.classes for one in each.devices if one.id == device), None)
