"""The values behind each resource's answers, planned again only after a change of their sources; pure."""

from collections.abc import Collection, Mapping
from typing import NamedTuple

from nodeagent.components.deviceplugin.advertise import View
from nodeagent.config.schema import Settings
from nodeagent.config.sections.plugin import DevicePluginSettings
from nodeagent.model.allocation import AllocationTable
from nodeagent.model.gpu import Inventory
from nodeagent.model.ids import DeviceId, GpuUuid, ResourceName
from nodeagent.model.mps import MpsAccess
from nodeagent.model.plugin import HandoutFacts
from nodeagent.rules.mps.access import plan_share_access
from nodeagent.rules.offer.devices import PluginDevice, Resource, ResourcePlan
from nodeagent.rules.offer.resources import plan_resources
from nodeagent.rules.placement.prefer import Preference
from nodeagent.rules.placement.topology import plan_topology


class ResourceOffer(NamedTuple):
    """The values behind a resource's answers; replaced whole."""

    resource: Resource
    known: Mapping[DeviceId, PluginDevice]
    preference: Preference
    view: View
    settings: DevicePluginSettings
    facts: HandoutFacts
    all_settings: Settings = Settings()

    def plan_mps(self, devices: Collection[PluginDevice]) -> MpsAccess | None:
        """A container's access to the MPS daemon of the given replicas; `None` without a daemon.

        Raises:
            RequestInvalid: The replicas cannot be used together.
        """
        return plan_share_access(self.all_settings, self.resource.name, devices)


class OfferPlan(NamedTuple):
    """A plan of all resources, with the sources."""

    origin: tuple[object, ...]
    plan: ResourcePlan
    known: Mapping[ResourceName, Mapping[DeviceId, PluginDevice]]
    preferences: Mapping[ResourceName, Preference]

    def offer(self, name: ResourceName, view: View, settings: Settings, facts: HandoutFacts) -> ResourceOffer:
        """The offer of a resource; a resource offered no more has only the devices held by containers."""
        resource = self.plan.find(name) or Resource(name=name, devices=())
        preference = self.preferences.get(name) or Preference(resource, plan_topology(view.inventory), "packed")
        known = self.known.get(name, {})
        return ResourceOffer(resource, known, preference, view, settings.device_plugin, facts, settings)


def make_plan(
    kept: OfferPlan | None, inventory: Inventory, settings: Settings, closed: frozenset[GpuUuid]
) -> OfferPlan:
    """The plan for the inventory, settings and GPUs of other allocation modes; the kept plan for equal sources."""
    origin = (inventory, closed, settings.device_plugin, settings.sharing, settings.resources, settings.gpus)
    if kept is not None and kept.origin == origin:
        return kept
    plan = plan_resources(inventory, settings, closed)
    topology, policy = plan_topology(inventory), settings.device_plugin.shared_allocation_policy
    return OfferPlan(
        origin,
        plan,
        {resource.name: {device.id: device for device in resource.devices} for resource in plan.resources},
        {resource.name: Preference(resource, topology, policy) for resource in plan.resources},
    )


def find_held(table: AllocationTable) -> dict[ResourceName, tuple[DeviceId, ...]]:
    """By resource, the devices held by containers."""
    held: dict[ResourceName, tuple[DeviceId, ...]] = {}
    for allocation in table.allocations:
        held[allocation.resource] = held.get(allocation.resource, ()) + allocation.devices
    return held
