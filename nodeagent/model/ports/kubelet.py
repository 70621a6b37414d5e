"""What is asked of the kubelet, and what it asks of us."""

from collections.abc import Collection, Mapping, Sequence
from typing import Protocol

from msgspec import field

from nodeagent.model.allocation import Allocation, ClaimedDevice, PodIdentity
from nodeagent.model.ids import DeviceId, ResourceName
from nodeagent.model.plugin import AdvertisedDevice, ContainerAnswer, PluginOptions
from nodeagent.model.values import Value


class AllocationJournal(Protocol):
    """The port that matters most: the kubelet is answered only after `record` is through."""

    async def record(self, resource: ResourceName, devices: Sequence[DeviceId]) -> Allocation:
        """Make an allocation durable.

        Raises:
            DeviceHeld: a living pod surely holds one of the devices.
            JournalUnavailable: it could not be made durable.
        """
        ...

    async def identify(self, resource: ResourceName, devices: Sequence[DeviceId]) -> None:
        """Learn from the kubelet which container is about to start with these devices.

        Raises:
            JournalUnavailable: whose they are cannot be written down, and pods are refused while that is so.
        """
        ...

    def doubtful(self) -> Collection[DeviceId]:
        """Devices that the kubelet may take for free although somebody may hold them."""
        ...


class ContainerDevices(Value, frozen=True):
    """What the kubelet says one container holds of one resource."""

    pod: PodIdentity
    container: str
    resource: ResourceName
    devices: tuple[DeviceId, ...]
    cdi_names: tuple[str, ...] = ()
    """What the plugin answered, in the kubelet's notes alone."""


class DevicePlugin(Protocol):
    """One resource, as the kubelet asks about it; `edge/kubelet` carries the questions."""

    @property
    def resource(self) -> ResourceName:
        """The extended resource that this plugin offers."""
        ...

    @property
    def options(self) -> PluginOptions:
        """Which of the optional questions the kubelet should ask; fixed for the plugin's life."""
        ...

    async def wait_devices(self, known: tuple[AdvertisedDevice, ...] | None) -> tuple[AdvertisedDevice, ...]:
        """The whole device list, as soon as it differs from `known`; at once when nothing is known yet."""
        ...

    def prefer(self, available: Sequence[DeviceId], must_include: Sequence[DeviceId], size: int) -> Sequence[DeviceId]:
        """Which of the available devices serve one container best; odd questions get a valid answer, not an error."""
        ...

    async def allocate(self, devices: Sequence[DeviceId]) -> ContainerAnswer:
        """What one container needs in order to use these devices; there is an answer only when it is durable.

        Raises:
            AllocationError: the devices must not be handed out; the message reaches the pod's event.
        """
        ...

    async def pre_start(self, devices: Sequence[DeviceId]) -> None:
        """Called before each start of a container that holds these devices.

        Raises:
            AllocationError: the container must not start; the message reaches the pod's event.
        """
        ...


class PluginSource(Protocol):
    """Resources that another part answers for; the device plugin serves them as it serves its own."""

    def list_plugins(self) -> Mapping[ResourceName, DevicePlugin]:
        """Who answers for which; the same object as long as the process lives."""
        ...


class PodListing(Value, frozen=True):
    """The kubelet's whole word on who holds what."""

    pods: tuple[PodIdentity, ...] = ()
    """All active pods, also those without devices: only so can a forgotten holder be told from one that is gone."""
    containers: tuple[ContainerDevices, ...] = ()
    """The containers that hold devices."""
    claimed: tuple[ClaimedDevice, ...] = ()
    """What containers hold by claims, which is another matter than devices of plugins."""


class PodResources(Protocol):
    """The kubelet's own word on who holds what."""

    async def read_pods(self) -> PodListing:
        """All active pods and what their containers hold, each device once; the pods' uids are not told.

        Raises:
            NodeagentError: the kubelet cannot be asked now.
        """
        ...


class KubeletCheckpoint(Value, frozen=True):
    """What the kubelet has written down for its own restart: advisory, and perhaps of pods that are gone."""

    containers: tuple[ContainerDevices, ...] = ()
    """Pods by uid alone."""
    registered: dict[str, tuple[DeviceId, ...]] = field(default_factory=dict)
    """The healthy devices of each resource."""
