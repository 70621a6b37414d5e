"""Devices of any vendor: as a node shows them, and as containers are given them.

The kernel's view comes as `HostDevices`, without any meaning; the classes of the configuration make a `DeviceTable`
of it.
"""

from collections.abc import Mapping
from enum import StrEnum

from nodeagent.model.ids import DeviceId, PciAddress, ResourceName
from nodeagent.model.values import Value


class ScanRequest(Value, frozen=True):
    """Which device nodes a scan of the host is for."""

    patterns: tuple[str, ...] = ()
    """Paths of nodes, with wildcards or without."""
    sysfs_classes: tuple[str, ...] = ()
    """Classes of sysfs; all nodes of the classes are found."""
    is_pci: bool = False
    """Whether all nodes of PCI functions are found, whatever their names."""


class HostNode(Value, frozen=True):
    """A device node of the host, with its properties in sysfs."""

    path: str
    """As the host names the node."""
    is_block: bool = False
    number: tuple[int, int] = (0, 0)
    """Major and minor."""
    sysfs: str = ""
    """The node's own directory below /sys, without links; empty where sysfs does not know the node."""
    sysfs_class: str = ""
    hardware: str = ""
    """The directory below /sys of the node's hardware; empty where there is none."""
    pci: PciAddress | None = None
    """The nearest PCI function above the node."""
    numa_node: int | None = None


class PciPlace(Value, frozen=True):
    """A function on the PCI bus."""

    vendor: int
    pci_class: int
    """Class, subclass and interface: 0x030000."""
    device: int = 0
    chain: tuple[str, ...] = ()
    """From the root of the bus to the function: the longer the common start of two chains, the nearer the functions."""


class HostDevices(Value, frozen=True):
    """The result of a scan of /dev and sysfs."""

    nodes: tuple[HostNode, ...] = ()
    """In the order of paths."""
    functions: Mapping[PciAddress, PciPlace] = {}
    missing: tuple[str, ...] = ()
    """Requested paths without wildcards that do not exist, or are no device nodes."""


class Standing(StrEnum):
    """Whether a device can be given to containers."""

    HEALTHY = "healthy"
    UNHEALTHY = "unhealthy"
    GONE = "gone"
    """The device's nodes do not exist."""


class HostDevice(Value, frozen=True):
    """A device of a class: a device node or several."""

    id: DeviceId
    """Without the number of a replica."""
    name: str
    """For people: the path of the node, or the common part of the nodes' names."""
    nodes: tuple[str, ...]
    """As the host names the nodes, in the order in which they are counted."""
    sysfs: str = ""
    """Of the first node."""
    pci: PciAddress | None = None
    numa_node: int | None = None
    standing: Standing = Standing.HEALTHY
    reason: str = ""
    """Why the device is not healthy."""


class DeviceClassState(Value, frozen=True):
    """The devices of a class."""

    resource: ResourceName
    replicas: int = 1
    devices: tuple[HostDevice, ...] = ()
    """Present devices, and gone devices that a container holds or that were present at some time since the start."""
    problems: tuple[str, ...] = ()
    """Why nodes are not given out, a sentence each."""

    @property
    def healthy_count(self) -> int:
        """How many devices can be given."""
        return sum(each.standing is Standing.HEALTHY for each in self.devices)


class DeviceTable(Value, frozen=True):
    """State: the devices of the configured classes."""

    classes: tuple[DeviceClassState, ...] = ()
    """In the order of the configuration."""

    def find(self, device: str) -> HostDevice | None:
        """The device of this id, of whatever class."""
        return next((one for each in self.classes for one in each.devices if one.id == device), None)
