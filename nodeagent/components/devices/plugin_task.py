"""The plugin of a device class, for the kubelet's questions: list, preferences, answers.

Outlives the component behind it: during a restart of the component the last list stands and is served.
Refuses to answer before the journal holds the allocation.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING

from nodeagent.components.devices.offer import ClassOffer, explain_unfitness, select
from nodeagent.config.live import LiveSettings
from nodeagent.config.sections.devices import DeviceClass
from nodeagent.core.channels.gathered import Gathered
from nodeagent.core.life.handle import Handle
from nodeagent.model.errors import DeviceUnhealthy, DeviceUnknown, NodeagentError
from nodeagent.model.ids import DeviceId, ResourceName
from nodeagent.model.plugin import AdvertisedDevice, ContainerAnswer, PluginOptions
from nodeagent.model.ports import AllocationJournal, DevicePlugin
from nodeagent.rules.devices.answer import plan_answer
from nodeagent.rules.devices.group import name_resource
from nodeagent.rules.devices.prefer import narrow_gpus, prefer_devices

if TYPE_CHECKING:
    from nodeagent.components.devices.component import Devices


class ClassPlugin:
    """A resource; implements the port `DevicePlugin`."""

    options = PluginOptions(preferred_allocation=True, pre_start=True)

    def __init__(self, resource: ResourceName, live: LiveSettings, journal: AllocationJournal) -> None:
        self._resource, self._live, self._journal = resource, live, journal
        self._list: Gathered[tuple[AdvertisedDevice, ...]] = Gathered(())
        self._offer: ClassOffer | None = None
        self._score_nearness: Callable[[], Mapping[str, int]] = dict

    @property
    def resource(self) -> ResourceName:
        """The extended resource of the plugin."""
        return self._resource

    def update(self, offer: ClassOffer, score_nearness: Callable[[], Mapping[str, int]]) -> None:
        """Answer from the given offer; `score_nearness` is called on each of the kubelet's questions."""
        self._offer, self._score_nearness = offer, score_nearness
        self._list.put(offer.listed)

    async def wait_devices(self, known: tuple[AdvertisedDevice, ...] | None) -> tuple[AdvertisedDevice, ...]:
        """The whole list as soon as it differs from `known`, changes gathered for a moment."""
        return await self._list.wait_other(known, self._live.now.device_plugin.health_coalesce_seconds)

    def prefer(self, available: Sequence[DeviceId], must_include: Sequence[DeviceId], size: int) -> Sequence[DeviceId]:
        """Devices near the GPUs just given to the container, and near one another."""
        devices = self._offer.devices if self._offer is not None else {}
        near, avoid = self._score_nearness(), self._journal.doubtful()
        return prefer_devices(devices, available, must_include, size, near=near, avoid=avoid)

    async def allocate(self, devices: Sequence[DeviceId]) -> ContainerAnswer:
        """Everything a container needs in order to use these devices; durable on return.

        Raises:
            AllocationError: The devices must not be handed out.
        """
        offer = self._offer
        if offer is None:
            raise DeviceUnknown(self._resource, ", ".join(devices))
        selected = select(offer, self._resource, devices)
        await self._journal.record(self._resource, devices)
        return plan_answer(offer.device_class, selected, offer.extra_nodes, by_name=offer.by_name)

    async def pre_start(self, devices: Sequence[DeviceId]) -> None:
        """Identify the container about to start; refuse only broken devices.

        Raises:
            DeviceUnhealthy: The container would start on a device that does not work.
        """
        if self._offer is not None:
            for device in devices:
                if reason := explain_unfitness(self._offer, device):
                    raise DeviceUnhealthy(device, reason)
        await self._journal.identify(self._resource, devices)


class ClassPlugins:
    """The plugins of all classes, kept as long as the process lives; implements the port `PluginSource`.

    All resources of the settings are present from the first moment, so that the device plugin takes none of them, with
    devices still held, for a resource that is offered no more.
    """

    def __init__(self, live: LiveSettings, journal: AllocationJournal) -> None:
        self._live, self._journal = live, journal
        self.plugins: dict[ResourceName, ClassPlugin] = {}
        self.component: Handle[Devices] = Handle(lambda: NodeagentError("the devices are not known yet"))
        self.follow(live.now.devices.classes)

    def narrow(
        self, resource: ResourceName, available: Sequence[DeviceId], must_include: Sequence[DeviceId], size: int
    ) -> Sequence[DeviceId]:
        """The available GPUs nearest to the devices just given to the same container."""
        devices = self.component.value
        near = devices.score_gpus(resource) if devices is not None else {}
        return narrow_gpus(available, must_include, size, near)

    def follow(self, classes: Iterable[DeviceClass]) -> None:
        """Keep a plugin for each class whose devices are given whole, and for no other."""
        wanted = [name_resource(each) for each in classes if not each.divisible]
        for name in self.plugins.keys() - set(wanted):
            del self.plugins[name]
        for name in wanted:
            if name not in self.plugins:
                self.plugins[name] = ClassPlugin(name, self._live, self._journal)

    def list_plugins(self) -> Mapping[ResourceName, DevicePlugin]:
        """The plugin of each resource."""
        return self.plugins
