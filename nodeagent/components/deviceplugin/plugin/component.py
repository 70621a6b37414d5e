"""One resource of whole or shared GPUs, as the kubelet asks about it: its list, its preferences, its answers.

Refuses to answer before the journal holds the allocation.
"""

from collections.abc import Callable, Iterable, Sequence
from uuid import uuid4

from nodeagent.components.deviceplugin.advertise import explain_loss, explain_unfitness, plan_list
from nodeagent.components.deviceplugin.answer import plan_answer, select_devices
from nodeagent.components.deviceplugin.offers import ResourceOffer
from nodeagent.core.channels.envelope import Cause
from nodeagent.core.channels.gathered import Gathered
from nodeagent.model.errors import DeviceUnhealthy
from nodeagent.model.ids import DeviceId, ResourceName
from nodeagent.model.plugin import AdvertisedDevice, ContainerAnswer, PluginOptions
from nodeagent.model.ports import AllocationJournal
from nodeagent.rules.ids import find_uuid

Narrow = Callable[[ResourceName, Sequence[DeviceId], Sequence[DeviceId], int], Sequence[DeviceId]]
"""Of a resource's available devices those to choose from, given what must be included and how many are wanted."""


def narrow_nothing(
    _resource: ResourceName, available: Sequence[DeviceId], _must_include: Sequence[DeviceId], _size: int
) -> Sequence[DeviceId]:
    """All of them."""
    return available


class ResourcePlugin:
    """One resource, as the kubelet asks about it; implements the port `DevicePlugin`."""

    options = PluginOptions(preferred_allocation=True, pre_start=True)

    def __init__(self, offer: ResourceOffer, journal: AllocationJournal, narrow: Narrow) -> None:
        self._offer, self._journal, self._narrow = offer, journal, narrow
        self._list: Gathered[tuple[AdvertisedDevice, ...]] = Gathered(())
        self._fit: frozenset[DeviceId] = frozenset()
        self._listed: object = None
        self.cause: Cause = None
        """What the newest change of the list follows from."""

    @property
    def resource(self) -> ResourceName:
        """The extended resource that this plugin offers."""
        return self._offer.resource.name

    def update(self, offer: ResourceOffer, held: Iterable[DeviceId], cause: Cause = None) -> None:
        """Answer from now on with this; `held` are devices of this resource that containers have."""
        self._offer = offer
        gone = sorted(name for name in held if name not in offer.known)
        # Every allocation comes through here, and a list of 1,600 shares takes a millisecond to plan.
        origin = (offer.resource, offer.view, gone)
        if origin == self._listed:
            return
        self._listed = origin
        wanted = plan_list(offer.resource, offer.view, gone)
        self._fit = frozenset(device.id for device in wanted if device.healthy)
        if self._list.put(wanted):
            self.cause = cause

    async def wait_devices(self, known: tuple[AdvertisedDevice, ...] | None) -> tuple[AdvertisedDevice, ...]:
        """The whole list as soon as it differs from `known`, changes gathered for a moment.

        One fault often hits several devices within milliseconds, and each list makes the kubelet write its checkpoint.
        """
        return await self._list.wait_other(known, self._offer.settings.health_coalesce_seconds)

    def prefer(self, available: Sequence[DeviceId], must_include: Sequence[DeviceId], size: int) -> Sequence[DeviceId]:
        """The best devices of those available, away from what somebody may still hold."""
        available = self._narrow(self.resource, available, must_include, size)
        return self._offer.preference.prefer(available, must_include, size, self._journal.doubtful())

    async def allocate(self, devices: Sequence[DeviceId]) -> ContainerAnswer:
        """What one container needs in order to use these devices; durable when it is returned.

        Raises:
            AllocationError: the devices must not be handed out.
        """
        offer = self._offer
        selected = select_devices(offer.resource, offer.known, devices)
        unfit = next((device for device in selected if device.id not in self._fit), None)
        if unfit is not None:
            raise DeviceUnhealthy(unfit.id, explain_unfitness(unfit, offer.view))
        mps = offer.plan_mps(selected)
        await self._journal.record(offer.resource.name, devices)
        # Randomness is asked of the kernel, and a pod waits: only where it has a use.
        token = str(uuid4()) if "cdi-annotations" in offer.settings.device_list_strategy else ""
        return plan_answer(selected, offer.settings, offer.facts, token, mps)

    async def pre_start(self, devices: Sequence[DeviceId]) -> None:
        """Learn who starts; refuse only what is broken.

        Raises:
            DeviceUnhealthy: the container would start on a device that does not work.
        """
        for device in devices:
            reason = explain_loss(find_uuid(device), self._offer.view)
            if reason:
                raise DeviceUnhealthy(device, reason)
        await self._journal.identify(self.resource, devices)
