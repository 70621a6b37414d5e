"""What the kubelet is told: the devices on offer, and what a container needs in order to use the ones it got."""

from collections.abc import Sequence
from enum import StrEnum
from typing import Final

from msgspec import field

from nodeagent.model.ids import DeviceId, ResourceName
from nodeagent.model.values import Value

_NAMED: Final = 8
"""Devices that a sentence names one by one."""


class AdvertisedDevice(Value, frozen=True):
    """One line of the list that the kubelet holds."""

    id: DeviceId
    healthy: bool
    numa_node: int | None = None


class AdvertisedResource(Value, frozen=True):
    """One resource, its socket, and its devices as last sent."""

    name: ResourceName
    socket: str
    registered: bool
    devices: tuple[AdvertisedDevice, ...] = ()
    last_error: str = ""
    contested: str = ""
    """What shows that another device plugin offers the same resource; empty when nothing does."""


class UnofferedCause(StrEnum):
    """Why pods cannot get a device that the node has, had or should have."""

    EXCLUDED = "excluded"
    """The configuration leaves this GPU alone, and offers others."""
    DOOR = "door"
    """The GPU goes through another door, or none."""
    DRAINING = "draining"
    """The GPU is to go through another door, or none, as soon as nobody has it, and nobody new gets it until then."""
    UNSELECTED = "unselected"
    """`gpus.include` means no GPU of this node at all."""
    PARTITIONED = "partitioned"
    """A MIG device of a GPU that is offered as a whole."""
    WITHHELD = "withheld"
    """It cannot be offered as configured."""
    UNFIT = "unfit"
    """It is offered, and must not be handed out now."""
    UNTOLD = "untold"
    """The kubelet does not know of it (yet)."""
    MISSING = "missing"
    """It is on the PCI bus, and the driver does not list it."""
    VANISHED = "vanished"
    """The node had it."""
    EXPECTED = "expected"
    """The configuration counts it, and nothing else is known of it."""


_ON_PURPOSE: Final = frozenset({UnofferedCause.EXCLUDED, UnofferedCause.DOOR, UnofferedCause.DRAINING})


class Unoffered(Value, frozen=True):
    """One device that pods cannot get, and why."""

    device: str
    """Its UUID; where there is none its PCI address, or its number among those that are expected."""
    gpu: str
    """The same of the GPU that it is or belongs to."""
    name: str
    """What to call it: `GPU 3`, `GPU 0:1 (1g.10gb)`."""
    cause: UnofferedCause
    reason: str

    @property
    def is_part_of_offered(self) -> bool:
        """Whether pods get it with the GPU that it is a part of."""
        return self.cause is UnofferedCause.PARTITIONED


class OfferAccount(Value, frozen=True):
    """What the node has, had and should have, and what of it pods cannot get: nothing is left over."""

    gpus: int
    devices_offered: int
    """GPUs and MIG devices that the kubelet may hand out, however many shares each has."""
    unoffered: tuple[Unoffered, ...] = ()

    @property
    def troubled(self) -> tuple[Unoffered, ...]:
        """Those that nobody has left out on purpose."""
        return tuple(one for one in self.unoffered if one.cause not in _ON_PURPOSE)

    @property
    def gpus_excluded(self) -> int:
        """GPUs that the configuration leaves alone."""
        return sum(one.cause is UnofferedCause.EXCLUDED for one in self.unoffered)

    @property
    def gpus_elsewhere(self) -> int:
        """GPUs that go through another door, or none."""
        return sum(one.cause is UnofferedCause.DOOR for one in self.unoffered)

    @property
    def gpus_draining(self) -> int:
        """GPUs that nobody new gets, because they are to go through another door, or none."""
        return sum(one.cause is UnofferedCause.DRAINING for one in self.unoffered)

    @property
    def gpus_offered(self) -> int:
        """GPUs that pods can get, whole or with all their parts."""
        # Two may have the same UUID, and neither is offered then: their names differ.
        short = {(one.gpu, one.name.partition(":")[0]) for one in self.unoffered if not one.is_part_of_offered}
        return self.gpus - len(short)

    def describe(self) -> str:
        """How many GPUs are offered and why no more: each reason once, with the devices that it is about."""
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
    """Their names, the first few; the others are counted, and listed in the record of the node."""
    names = list(dict.fromkeys(one.name for one in devices))
    more = len(names) - _NAMED
    rest = f" and {more} more (`nodeagent status --json` lists them)" if more > 0 else ""
    return ", ".join(names[:_NAMED]) + rest


class PluginState(Value, frozen=True):
    """State: every resource that this node advertises, and what it does not."""

    resources: tuple[AdvertisedResource, ...] = ()
    account: OfferAccount | None = None
    """`None` where the device plugin is switched off."""


class PluginOptions(Value, frozen=True):
    """Which of the optional questions the kubelet should ask."""

    preferred_allocation: bool = True
    pre_start: bool = False


class ContainerMount(Value, frozen=True):
    """A file or directory of the host that the container sees, or memory of its own."""

    container_path: str
    host_path: str = ""
    read_only: bool = True
    memory_bytes: int = 0
    """How large a file system is that begins empty with the container and ends with it; then nothing is of the host.

    Of use in CDI specifications alone: the kubelet knows no such mount.
    """


class ContainerDevice(Value, frozen=True):
    """A device node of the host that the container may use."""

    container_path: str
    host_path: str
    permissions: str = "rw"
    """Any of the letters r, w and m."""


class ContainerAnswer(Value, frozen=True):
    """The answer to Allocate: everything one container needs in order to use the devices it was given."""

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
    """What the node has that an Allocate answer depends on."""

    control_nodes: tuple[str, ...] = ()
    """Those of the driver's control nodes that exist, in their usual order."""
    dev_root: str = "/"
    """Where the host keeps the `dev` that has the driver's device nodes."""
    capabilities: tuple[MigCapability, ...] = ()
    imex_channels: tuple[int, ...] = ()
    """Those of the configured channels that exist."""
    cdi_extras: tuple[str, ...] = ()
    """Those of gdrcopy, gds and mofed for which there is a CDI specification."""
