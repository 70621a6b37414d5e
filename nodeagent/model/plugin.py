"""What the kubelet is told: the devices on offer, and what a container needs in order to use the ones it got."""

from msgspec import field

from nodeagent.model.ids import DeviceId, ResourceName
from nodeagent.model.values import Value


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


class PluginState(Value, frozen=True):
    """State: every resource that this node advertises."""

    resources: tuple[AdvertisedResource, ...] = ()


class PluginOptions(Value, frozen=True):
    """Which of the optional questions the kubelet should ask."""

    preferred_allocation: bool = True
    pre_start: bool = False


class ContainerMount(Value, frozen=True):
    """A file or directory of the host that the container sees."""

    container_path: str
    host_path: str
    read_only: bool = True


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
