"""One resource that counts parts of GPUs: its list of ids, and the way to whoever answers for them.

Outlives the component behind it: while that is built anew the list stands, and questions are to be asked again.
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


class TokenPlugin:
    """One resource, as the kubelet asks about it; implements the port `DevicePlugin`."""

    options = PluginOptions(preferred_allocation=True, pre_start=True)

    def __init__(self, resource: ResourceName, relay: PartsRelay, live: LiveSettings) -> None:
        self._resource, self._relay, self._live = resource, relay, live
        self._list: Gathered[tuple[AdvertisedDevice, ...]] = Gathered(())
        self._healthy: dict[DeviceId, bool] = {}

    @property
    def resource(self) -> ResourceName:
        """The extended resource that this plugin offers."""
        return self._resource

    def update(self, devices: tuple[AdvertisedDevice, ...]) -> None:
        """Offer these from now on."""
        if self._list.put(devices):
            self._healthy = {device.id: device.healthy for device in devices}

    async def wait_devices(self, known: tuple[AdvertisedDevice, ...] | None) -> tuple[AdvertisedDevice, ...]:
        """The whole list as soon as it differs from `known`, changes gathered for a moment."""
        return await self._list.wait_other(known, self._live.now.device_plugin.health_coalesce_seconds)

    def prefer(self, available: Sequence[DeviceId], must_include: Sequence[DeviceId], size: int) -> Sequence[DeviceId]:
        """Ids of as few GPUs as can be, at one NUMA node."""
        return prefer_tokens(available, must_include, size)

    async def allocate(self, devices: Sequence[DeviceId]) -> ContainerAnswer:
        """Promise these ids; durable when it is returned.

        Raises:
            AllocationError: they must not be promised.
        """
        for device in devices:
            if device not in self._healthy:
                raise DeviceUnknown(self._resource, device)
            if not self._healthy[device]:
                raise DeviceUnhealthy(device, "nothing of its GPU can be given now, see `nodeagent status`")
        return await self._relay.find_keeper().allocate(self._resource, devices)

    async def pre_start(self, devices: Sequence[DeviceId]) -> None:
        """Give the container its parts.

        Raises:
            AllocationError: it must not start now.
        """
        await self._relay.find_keeper().pre_start(self._resource, devices)


async def tell_known(bus: Bus, list_offered: Callable[[], Collection[ResourceName]], tell: Callable[[], None]) -> None:
    """Tell it once the kubelet has taken each of these resources."""
    with bus.watch(PluginState, client="fractions told") as states:
        async for state in states:
            known = {each.name for each in state.value.resources if each.registered}
            if known.issuperset(list_offered()):
                tell()
                return
