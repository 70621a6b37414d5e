"""What the kubelet has been told."""

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


class PluginState(Value, frozen=True):
    """State: every resource that this node advertises."""

    resources: tuple[AdvertisedResource, ...] = ()
