"""The device plugin of one resource of fractions: its list of ids, and the handle to the component.

Outlives the component: while the component restarts the list stands, and calls are to be repeated.
"""

from collections.abc import Callable, Collection, Sequence

from nodeagent.components.fractions.relay import PartsRelay
from nodeagent.config.live import LiveSettings
from nodeagent.core.channels.bus import Bus
from nodeagent.core.channels.gathered import Gathered
from nodeagent.model.errors import DeviceUnhealthy, DeviceUnknown
from nodeagent.model.ids import DeviceId, ResourceName
from nodeagent.model.plugin import AdvertisedDevice, ContainerAnswer, PluginOptions, PluginState
from nodeagent.rules.fractions.tokens import prefer_tokens


class FractionPlugin:
    """A resource of fractions for the kubelet; implements the port `DevicePlugin`."""

    options = PluginOptions(preferred_allocation=True, pre_start=True)

    def __init__(self, resource: ResourceName, relay: PartsRelay, live: LiveSettings) -> None:
        self._resource, self._relay, self._live = resource, relay, live
        self._list: Gathered[tuple[AdvertisedDevice, ...]] = Gathered(())
        self._healthy: dict[DeviceId, bool] = {}

    @property
    def resource(self) -> ResourceName:
        """The plugin's extended resource."""
        return self._resource

    def update(self, devices: tuple[AdvertisedDevice, ...]) -> None:
        """Offer the given devices from now on."""
        if self._list.put(devices):
            self._healthy = {device.id: device.healthy for device in devices}

    async def wait_devices(self, known: tuple[AdvertisedDevice, ...] | None) -> tuple[AdvertisedDevice, ...]:
        """The whole list as soon as it differs from `known`, changes gathered for a moment."""
        return await self._list.wait_other(known, self._live.now.device_plugin.health_coalesce_seconds)

    def prefer(self, available: Sequence[DeviceId], must_include: Sequence[DeviceId], size: int) -> Sequence[DeviceId]:
        """Ids of as few GPUs as possible, at a single NUMA node."""
        return prefer_tokens(available, must_include, size)

    async def allocate(self, devices: Sequence[DeviceId]) -> ContainerAnswer:
        """Reserve the ids, durable before the answer.

        Raises:
            AllocationError: The ids must not be reserved.
        """
        for device in devices:
            if device not in self._healthy:
                raise DeviceUnknown(self._resource, device)
            if not self._healthy[device]:
                raise DeviceUnhealthy(device, "nothing of its GPU can be given now, see `nodeagent status`")
        return await self._relay.find_keeper().allocate(self._resource, devices)

    async def pre_start(self, devices: Sequence[DeviceId]) -> None:
        """Give the starting container its fractions.

        Raises:
            AllocationError: The container must not start now.
        """
        await self._relay.find_keeper().pre_start(self._resource, devices)


async def tell_known(bus: Bus, list_offered: Callable[[], Collection[ResourceName]], tell: Callable[[], None]) -> None:
    """Call `tell` after the kubelet has registered all offered resources."""
    with bus.watch(PluginState, client="fractions told") as states:
        async for state in states:
            known = {each.name for each in state.value.resources if each.registered}
            if known.issuperset(list_offered()):
                tell()
                return
