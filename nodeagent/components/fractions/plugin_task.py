"""The device plugin of one resource of fractions: its list of ids, and the handle to the component.

Outlives the component: while the component restarts the list stands, and calls are to be repeated.
"""

from collections.abc import Callable, Collection, Mapping, Sequence
from typing import TYPE_CHECKING

from nodeagent.config.live import LiveSettings
from nodeagent.core.channels.bus import Bus
from nodeagent.core.channels.gathered import Gathered
from nodeagent.core.life.handle import Handle
from nodeagent.model.errors import DeviceUnhealthy, DeviceUnknown, FractionsUnavailable
from nodeagent.model.ids import DeviceId, ResourceName
from nodeagent.model.plugin import AdvertisedDevice, ContainerAnswer, PluginOptions, PluginState
from nodeagent.model.ports import DevicePlugin
from nodeagent.rules.fractions.device_ids import prefer_device_ids

if TYPE_CHECKING:
    from nodeagent.components.fractions.component import Fractions


class FractionPlugins:
    """The plugin of each resource, kept as long as the process lives; implements `PluginSource`."""

    def __init__(self) -> None:
        self.component: Handle[Fractions] = Handle(
            lambda: FractionsUnavailable("the part that gives them is starting or has failed: try again")
        )
        """The component, which answers the kubelet's calls."""
        self.plugins: dict[ResourceName, FractionPlugin] = {}

    def list_plugins(self) -> Mapping[ResourceName, DevicePlugin]:
        """The plugin of each resource."""
        return self.plugins


class FractionPlugin:
    """A resource of fractions for the kubelet; implements the port `DevicePlugin`."""

    options = PluginOptions(preferred_allocation=True, pre_start=True)

    def __init__(self, resource: ResourceName, component: "Handle[Fractions]", live: LiveSettings) -> None:
        self._resource, self._component, self._live = resource, component, live
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
        return prefer_device_ids(available, must_include, size)

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
        return await self._component.get().allocate(self._resource, devices)

    async def pre_start(self, devices: Sequence[DeviceId]) -> None:
        """Give the starting container its fractions.

        Raises:
            AllocationError: The container must not start now.
        """
        await self._component.get().pre_start(self._resource, devices)


async def report_registered(
    bus: Bus, list_offered: Callable[[], Collection[ResourceName]], tell: Callable[[], None]
) -> None:
    """Call `tell` after the kubelet has registered all offered resources."""
    with bus.watch(PluginState, client="fractions told") as states:
        async for state in states:
            known = {each.name for each in state.value.resources if each.registered}
            if known.issuperset(list_offered()):
                tell()
                return
