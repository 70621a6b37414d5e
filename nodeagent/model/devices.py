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
    links: tuple[str, ...] = ()
    """Paths of links to nodes, with wildcards."""
    is_pci: bool = False
    """Whether all nodes of PCI functions are found, whatever their names."""
    has_all_functions: bool = False
    """Whether all PCI functions are told, with a node or without."""


class UsbPlace(Value, frozen=True):
    """A device on a USB bus."""

    vendor: int
    product: int
    port: str
    """Bus and ports on the way to the device: 3-2.1; it stays the same when the device is plugged in again."""
    serial: str = ""


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
    """The nearest PCI function above the node; of a partition of a GPU, the GPU's function."""
    usb: UsbPlace | None = None
    """The nearest USB device above the node."""
    numa_node: int | None = None


class PciPlace(Value, frozen=True):
    """A function on the PCI bus."""

    vendor: int
    pci_class: int
    """Class, subclass and interface: 0x030000."""
    device: int = 0
    driver: str = ""
    """The bound kernel driver; empty without one."""
    parent: PciAddress | None = None
    """The physical function of a virtual function."""
    iommu_group: str = ""
    """The number of the IOMMU group; empty without one."""
    partition: str = ""
    """The compute and memory partitioning of an AMD GPU: cpx_nps4; empty for a function that cannot be partitioned."""
    numa_node: int | None = None
    chain: tuple[str, ...] = ()
    """From the root of the bus to the function: the longer the common start of two chains, the nearer the functions."""


class HostDevices(Value, frozen=True):
    """The result of a scan of /dev and sysfs."""

    nodes: tuple[HostNode, ...] = ()
    """In the order of paths."""
    functions: Mapping[PciAddress, PciPlace] = {}
    links: Mapping[str, str] = {}
    """Requested links, each with the path of the link's node."""
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
    """As the host names the nodes, in the order in which they are counted; companion nodes last."""
    links: tuple[tuple[str, str], ...] = ()
    """Links to the nodes, each with the path of the link's node."""
    sysfs: str = ""
    """Of the first node."""
    pci: PciAddress | None = None
    pci_addresses: tuple[PciAddress, ...] = ()
    """All PCI functions that the device stands for: several in an IOMMU group."""
    is_partition: bool = False
    """Whether the device is a part of a PCI function that has other parts."""
    sensors: str = ""
    """The directory below /sys in which the device can have sensors; empty where there is none."""
    numa_node: int | None = None
    memory_bytes: int | None = None
    """The memory to give out of a divisible device; `None` where unknown, and for other devices."""
    standing: Standing = Standing.HEALTHY
    reason: str = ""
    """Why the device is not healthy."""


class DeviceClassState(Value, frozen=True):
    """The devices of a class."""

    resource: ResourceName
    replicas: int = 1
    divisible: bool = False
    """Whether the devices are given in fractions alone: counted and told, not enforced."""
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


class Temperature(Value, frozen=True):
    """The reading of a sensor of heat."""

    sensor: str
    celsius: float
    critical_celsius: float | None = None
    """From here on the device may be damaged, or stops; `None` for a sensor without such a limit."""


class BlockErrors(Value, frozen=True):
    """Errors in a block of a GPU's hardware, such as its memory controller `umc`, since the driver was loaded."""

    block: str
    uncorrected: int
    corrected: int


class DeviceReadings(Value, frozen=True):
    """The readings of a device from the kernel's own files; `None` or empty for values that no file has."""

    temperatures: tuple[Temperature, ...] = ()
    power_watts: float | None = None
    energy_joules: float | None = None
    utilization_ratio: float | None = None
    memory_used_bytes: int | None = None
    memory_bytes: int | None = None
    errors: tuple[BlockErrors, ...] = ()


class DeviceReadingTable(Value, frozen=True):
    """State: the newest readings of the devices of the configured classes; devices without sensors are left out."""

    readings: Mapping[DeviceId, DeviceReadings] = {}
