"""The kubelet's view: the advertised devices, and a container's device nodes, mounts and environment."""

from collections.abc import Sequence
from enum import StrEnum
from typing import Final

from msgspec import field

from nodeagent.model.ids import DeviceId, ResourceName
from nodeagent.model.nvidia import VENDOR
from nodeagent.model.values import Value
from nodeagent.model.vendor import Vendor

_NAMED: Final = 8
"""Devices named singly in a sentence."""


class AdvertisedDevice(Value, frozen=True):
    """A line of the kubelet's device list."""

    id: DeviceId
    healthy: bool
    numa_node: int | None = None


class AdvertisedResource(Value, frozen=True):
    """A resource, its socket, and its devices as last sent."""

    name: ResourceName
    socket: str
    registered: bool
    devices: tuple[AdvertisedDevice, ...] = ()
    last_error: str = ""
    contested: str = ""
    """Evidence of another device plugin for the same resource; empty without evidence."""


class UnofferedCause(StrEnum):
    """Why pods cannot get a device that the node has, had or should have."""

    EXCLUDED = "excluded"
    """The configuration leaves the GPU alone, and offers others."""
    DOOR = "door"
    """The GPU has another allocation mode, or none."""
    DRAINING = "draining"
    """The GPU is to change to another allocation mode, or none, when its holders are gone; new pods do not get it."""
    CORDONED = "cordoned"
    """The GPU is kept from new pods by a cordon, whatever its allocation mode."""
    UNSELECTED = "unselected"
    """`gpus.include` means no GPU of the node at all."""
    PARTITIONED = "partitioned"
    """A MIG device of a GPU offered as a whole."""
    WITHHELD = "withheld"
    """The device cannot be offered as configured."""
    UNFIT = "unfit"
    """The device is offered, and must not be handed out now."""
    UNTOLD = "untold"
    """The kubelet does not know of the device (yet)."""
    MISSING = "missing"
    """The device is on the PCI bus, and missing from the driver's list."""
    VANISHED = "vanished"
    """The node had the device."""
    EXPECTED = "expected"
    """The configuration counts the device, otherwise unknown."""


_ON_PURPOSE: Final = frozenset(
    {UnofferedCause.EXCLUDED, UnofferedCause.DOOR, UnofferedCause.DRAINING, UnofferedCause.CORDONED}
)


class Unoffered(Value, frozen=True):
    """A device that pods cannot get, and why."""

    device: str
    """The device's UUID, or else its PCI address, or else its number among the expected GPUs."""
    gpu: str
    """The same of the GPU, or of the MIG device's GPU."""
    name: str
    """The device's name: `GPU 3`, `GPU 0:1 (1g.10gb)`."""
    cause: UnofferedCause
    reason: str

    @property
    def is_part_of_offered(self) -> bool:
        """Whether pods get the device with its whole GPU."""
        return self.cause is UnofferedCause.PARTITIONED


class OfferSummary(Value, frozen=True):
    """The node's devices past, present and expected, and those of them that pods cannot get, to the last device."""

    gpus: int
    devices_offered: int
    """GPUs and MIG devices offered to the kubelet, however many replicas each has."""
    unoffered: tuple[Unoffered, ...] = ()

    @property
    def troubled(self) -> tuple[Unoffered, ...]:
        """The devices not left out on purpose."""
        return tuple(one for one in self.unoffered if one.cause not in _ON_PURPOSE)

    @property
    def gpus_excluded(self) -> int:
        """GPUs that the configuration leaves alone."""
        return sum(one.cause is UnofferedCause.EXCLUDED for one in self.unoffered)

    @property
    def gpus_elsewhere(self) -> int:
        """GPUs of another allocation mode, or of none."""
        return sum(one.cause is UnofferedCause.DOOR for one in self.unoffered)

    @property
    def gpus_draining(self) -> int:
        """GPUs closed to new pods, because they are to change to another allocation mode, or none."""
        return sum(one.cause is UnofferedCause.DRAINING for one in self.unoffered)

    @property
    def gpus_cordoned(self) -> int:
        """GPUs kept from new pods by a cordon."""
        return sum(one.cause is UnofferedCause.CORDONED for one in self.unoffered)

    @property
    def gpus_offered(self) -> int:
        """GPUs that pods can get, whole or with all their MIG devices."""
        # Two GPUs may have the same UUID, and neither is offered then: their names differ.
        short = {(one.gpu, one.name.partition(":")[0]) for one in self.unoffered if not one.is_part_of_offered}
        return self.gpus - len(short)

    def describe(self) -> str:
        """How many GPUs are offered and why no more: each reason once, with its devices."""
        by_reason: dict[str, list[Unoffered]] = {}
        for one in self.unoffered:
            by_reason.setdefault(one.reason, []).append(one)
        reasons = "; ".join(f"{name_all(devices)}: {reason}" for reason, devices in by_reason.items())
        return f"{self.headline}: {reasons}"

    @property
    def headline(self) -> str:
        """How many GPUs are offered."""
        return f"{self.gpus_offered} of {self.gpus} {'GPU' if self.gpus == 1 else 'GPUs'} offered"


def name_all(devices: Sequence[Unoffered]) -> str:
    """The devices' names, the first few; the others are counted, and listed in the record of the node."""
    names = list(dict.fromkeys(one.name for one in devices))
    more = len(names) - _NAMED
    rest = f" and {more} more (`nodeagent status --json` lists them)" if more > 0 else ""
    return ", ".join(names[:_NAMED]) + rest


class PluginState(Value, frozen=True):
    """State: every resource advertised by the node, and the devices not offered."""

    resources: tuple[AdvertisedResource, ...] = ()
    account: OfferSummary | None = None
    """`None` where the device plugin is switched off."""


class PluginOptions(Value, frozen=True):
    """The optional questions for the kubelet to ask."""

    preferred_allocation: bool = True
    pre_start: bool = False


class ContainerMount(Value, frozen=True):
    """A file or directory of the host in the container, or memory of the container's own."""

    container_path: str
    host_path: str = ""
    read_only: bool = True
    memory_bytes: int = 0
    """Size of a file system empty at the container's start and gone at its end; with a size, nothing is of the host.

    Of use in CDI specifications alone: the kubelet knows no such mount.
    """


class ContainerDevice(Value, frozen=True):
    """A device node of the host in the container."""

    container_path: str
    host_path: str
    permissions: str = "rw"
    """Any of the letters r, w and m."""


class ContainerAnswer(Value, frozen=True):
    """The answer to Allocate: everything a container needs in order to use its devices."""

    environment: dict[str, str] = field(default_factory=dict)
    mounts: tuple[ContainerMount, ...] = ()
    devices: tuple[ContainerDevice, ...] = ()
    annotations: dict[str, str] = field(default_factory=dict)
    cdi_devices: tuple[str, ...] = ()
    """Fully qualified: `vendor/class=name`."""


class MigCapability(Value, frozen=True):
    """The capability node of a GPU instance, or of a compute instance in it, as the driver numbered it."""

    gpu_minor: int
    gpu_instance_id: int
    compute_instance_id: int | None
    node: int


class HandoutFacts(Value, frozen=True):
    """The node's properties on which an Allocate answer depends."""

    vendor: Vendor = VENDOR
    """The vendor of the node's GPUs."""
    control_nodes: tuple[str, ...] = ()
    """The driver's existing control nodes, in their usual order."""
    dev_root: str = "/"
    """The host's directory above the `dev` with the driver's device nodes."""
    capabilities: tuple[MigCapability, ...] = ()
    imex_channels: tuple[int, ...] = ()
    """The existing channels among the configured."""
    cdi_extras: tuple[str, ...] = ()
    """The extras with a CDI specification among gdrcopy, gds and mofed."""


class Distribution(Value, frozen=True):
    """How many values lie between each bound and the bound before; the last count is of values beyond all bounds."""

    bounds: tuple[float, ...]
    counts: tuple[int, ...]
    sum: float


class CallFacts(Value, frozen=True):
    """Answers to a single method of the kubelet for a single resource, by outcome."""

    method: str
    resource: str
    outcome: str
    durations: Distribution


class AdmissionFacts(Value, frozen=True):
    """Answers to the kubelet, and the journal writes before the answers."""

    calls: tuple[CallFacts, ...]
    journal_writes: int
    journal_failures: int
    journal_syncs: Distribution
