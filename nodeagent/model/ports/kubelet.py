"""Ports of the kubelet: its questions to the agent, and the agent's questions to it."""

from collections.abc import Collection, Mapping, Sequence
from typing import Protocol

from msgspec import field

from nodeagent.model.allocation import Allocation, ClaimedDevice, PodIdentity
from nodeagent.model.ids import DeviceId, ResourceName
from nodeagent.model.plugin import AdvertisedDevice, ContainerAnswer, PluginOptions
from nodeagent.model.values import Value


class AllocationJournal(Protocol):
    """The port that matters most: the kubelet is answered only after `record` has returned."""

    async def record(self, resource: ResourceName, devices: Sequence[DeviceId]) -> Allocation:
        """Make an allocation durable.

        Raises:
            DeviceHeld: A living pod surely holds a device of these.
            JournalUnavailable: The allocation could not be made durable.
        """
        ...

    async def identify(self, resource: ResourceName, devices: Sequence[DeviceId]) -> None:
        """Learn from the kubelet which container is about to start with these devices.

        Raises:
            JournalUnavailable: The holder cannot be journalled; pods are refused until it can.
        """
        ...

    def doubtful(self) -> Collection[DeviceId]:
        """Devices possibly held, although the kubelet may take them for free."""
        ...


class ContainerDevices(Value, frozen=True):
    """A container's devices of a resource, by the kubelet's word."""

    pod: PodIdentity
    container: str
    resource: ResourceName
    devices: tuple[DeviceId, ...]
    cdi_names: tuple[str, ...] = ()
    """CDI names of the plugin's answer, in the kubelet's checkpoint alone."""


class DevicePlugin(Protocol):
    """A resource, as the kubelet asks about it; `edge/kubelet` carries the questions."""

    @property
    def resource(self) -> ResourceName:
        """The extended resource of the plugin."""
        ...

    @property
    def options(self) -> PluginOptions:
        """The optional questions for the kubelet to ask; fixed for the plugin's life."""
        ...

    async def wait_devices(self, known: tuple[AdvertisedDevice, ...] | None) -> tuple[AdvertisedDevice, ...]:
        """The whole device list, as soon as it differs from `known`; at once when `known` is `None`."""
        ...

    def prefer(self, available: Sequence[DeviceId], must_include: Sequence[DeviceId], size: int) -> Sequence[DeviceId]:
        """The available devices best for a container; odd questions get a valid answer, not an error."""
        ...

    async def allocate(self, devices: Sequence[DeviceId]) -> ContainerAnswer:
        """Everything a container needs in order to use these devices; returns only after the answer is durable.

        Raises:
            AllocationError: The devices must not be handed out; the message reaches the pod's event.
        """
        ...

    async def pre_start(self, devices: Sequence[DeviceId]) -> None:
        """Called before each start of a container with these devices.

        Raises:
            AllocationError: The container must not start; the message reaches the pod's event.
        """
        ...


class PluginSource(Protocol):
    """Resources of another component; the device plugin serves them like its own."""

    def list_plugins(self) -> Mapping[ResourceName, DevicePlugin]:
        """The plugin of each resource; the same objects as long as the process lives."""
        ...


class KubeletPod(Value, frozen=True):
    """A pod on this node, by the kubelet's own status."""

    identity: PodIdentity
    phase: str = ""
    containers: tuple[str, ...] = ()
    """The ids of the containers, in the order of the status; empty for a container that was never made."""


class PodListing(Value, frozen=True):
    """The kubelet's whole word on pods and their devices."""

    pods: tuple[PodIdentity, ...] = ()
    """All active pods, also without devices: only so can a forgotten holder be told from a holder that is gone."""
    containers: tuple[ContainerDevices, ...] = ()
    """The containers with devices."""
    claimed: tuple[ClaimedDevice, ...] = ()
    """Devices of claims, apart from the devices of plugins."""

    def has_pod(self, pod: PodIdentity) -> bool:
        """Whether an active pod of the same name is on the node."""
        return any((each.namespace, each.name) == (pod.namespace, pod.name) for each in self.pods)


class KubeletCheckpoint(Value, frozen=True):
    """The kubelet's checkpoint for its own restart: advisory, and possibly of pods already gone."""

    containers: tuple[ContainerDevices, ...] = ()
    """Pods by uid alone."""
    registered: dict[str, tuple[DeviceId, ...]] = field(default_factory=dict)
    """The healthy devices of each resource."""
