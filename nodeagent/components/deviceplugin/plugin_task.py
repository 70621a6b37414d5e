"""The plugin of whole or shared GPUs, for the kubelet's questions: list, preferences, answers.

Refuses to answer before the journal holds the allocation.
"""

from collections.abc import Callable, Iterable, Sequence
from uuid import uuid4

from nodeagent.components.deviceplugin.advertise import TRIAL, explain_loss, explain_unfitness, plan_list
from nodeagent.components.deviceplugin.answer import ResourceOffer, plan_answer, select_devices
from nodeagent.core.channels.envelope import Cause
from nodeagent.core.channels.gathered import Gathered
from nodeagent.model.errors import DeviceUnhealthy
from nodeagent.model.ids import DeviceId, ResourceName
from nodeagent.model.plugin import AdvertisedDevice, ContainerAnswer, PluginOptions
from nodeagent.model.ports import AllocationJournal
from nodeagent.rules.container_receipts import add_receipt
from nodeagent.rules.ids import find_uuid

Narrow = Callable[[ResourceName, Sequence[DeviceId], Sequence[DeviceId], int], Sequence[DeviceId]]
"""A resource's available devices to choose from, given the included devices and the number wanted."""


def narrow_nothing(
    _resource: ResourceName, available: Sequence[DeviceId], _must_include: Sequence[DeviceId], _size: int
) -> Sequence[DeviceId]:
    """All available devices."""
    return available


class ResourcePlugin:
    """A resource, as the kubelet asks about it; implements the port `DevicePlugin`."""

    options = PluginOptions(preferred_allocation=True, pre_start=True)

    def __init__(self, offer: ResourceOffer, journal: AllocationJournal, narrow: Narrow) -> None:
        self._offer, self._journal, self._narrow = offer, journal, narrow
        self._list: Gathered[tuple[AdvertisedDevice, ...]] = Gathered(())
        self._fit: frozenset[DeviceId] = frozenset()
        self._listed: object = None
        self.cause: Cause = None
        """The cause of the newest change of the list."""

    @property
    def resource(self) -> ResourceName:
        """The extended resource of the plugin."""
        return self._offer.resource.name

    def update(self, offer: ResourceOffer, held: Iterable[DeviceId], cause: Cause = None) -> None:
        """Answer from the given offer; `held` are the resource's devices held by containers."""
        self._offer = offer
        # A single free device of a GPU to be proved is offered, so there the held devices matter too.
        gone = sorted(name for name in held if name not in offer.known or offer.view.trials)
        # Every allocation comes through here, and a list of 1,600 replicas takes a millisecond to plan.
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

        A fault often hits several devices within milliseconds, and each list makes the kubelet write its checkpoint.
        """
        return await self._list.wait_other(known, self._offer.settings.health_coalesce_seconds)

    def prefer(self, available: Sequence[DeviceId], must_include: Sequence[DeviceId], size: int) -> Sequence[DeviceId]:
        """The best of the available devices, with possibly held devices last."""
        available = self._narrow(self.resource, available, must_include, size)
        return self._offer.preference.prefer(available, must_include, size, self._journal.doubtful())

    async def allocate(self, devices: Sequence[DeviceId]) -> ContainerAnswer:
        """Everything a container needs in order to use these devices; durable on return.

        Raises:
            AllocationError: The devices must not be handed out.
        """
        offer = self._offer
        selected = select_devices(offer.resource, offer.known, devices)
        unfit = next((device for device in selected if device.id not in self._fit), None)
        if unfit is not None:
            reason = explain_unfitness(unfit, offer.view) or TRIAL
            raise DeviceUnhealthy(unfit.id, reason)
        mps = offer.plan_mps(selected)
        allocation = await self._journal.record(offer.resource.name, devices)
        # A pod waits for the kernel's random bytes: only where the answer uses them.
        token = str(uuid4()) if "cdi-annotations" in offer.settings.device_list_strategy else ""
        answer = plan_answer(selected, offer.settings, offer.facts, token, mps)
        return add_receipt(answer, allocation, offer.all_settings)

    async def pre_start(self, devices: Sequence[DeviceId]) -> None:
        """Identify the container about to start; refuse only broken devices.

        Raises:
            DeviceUnhealthy: The container would start on a device that does not work.
        """
        for device in devices:
            reason = explain_loss(find_uuid(device), self._offer.view)
            if reason:
                raise DeviceUnhealthy(device, reason)
        await self._journal.identify(self.resource, devices)
