"""The resources of this node's offer, and the devices of each.

Owns the whole plan: the layout, then names, then sharing. The device plugin offers the plan and the labels show it, so
that the two cannot disagree; health is laid over it by the device plugin.

Refuses to give up for one device: an impossible offer becomes a problem with a reason, and the rest is served.
"""

from collections import defaultdict
from collections.abc import Container, Iterable

from nodeagent.config.schema import Settings
from nodeagent.model.allocation import Allocation
from nodeagent.model.gpu import Gpu, Inventory
from nodeagent.model.ids import DeviceId, ResourceName
from nodeagent.model.plugin import PluginState
from nodeagent.rules.offer.devices import (
    NAME_MAX,
    Candidate,
    Offer,
    PluginDevice,
    Resource,
    ResourcePlan,
    ResourceProblem,
    plan_name,
)
from nodeagent.rules.offer.layout import plan_candidates
from nodeagent.rules.offer.sharing import find_sharing, replicate_devices
from nodeagent.rules.selectors import select_gpus


def plan_resources(inventory: Inventory, settings: Settings, closed: Container[str] = ()) -> ResourcePlan:
    """The offer for an inventory under the given settings; the order of the inventory makes no difference.

    `closed` are GPUs not given out whole, or not to new pods.
    """
    offer = plan_offer(inventory.gpus, settings, closed)
    sharing = find_sharing(settings.sharing)
    devices = defaultdict[ResourceName, list[PluginDevice]](list)
    for each in offer.devices:
        devices[each.resource].extend(each.list_devices())
    return ResourcePlan(
        resources=tuple(
            Resource(
                name=name,
                devices=tuple(members),
                one_share_each=sharing is not None and sharing.failRequestsGreaterThanOne,
            )
            for name, members in sorted(devices.items())
        ),
        problems=offer.problems,
    )


def plan_offer(gpus: Iterable[Gpu], settings: Settings, closed: Container[str] = ()) -> Offer:
    """The devices with resource names and numbers of replicas; none of a closed GPU."""
    problems: list[ResourceProblem] = []
    selected = select_gpus(gpus, settings.gpus.include, settings.gpus.exclude)
    chosen = tuple(gpu for gpu in selected if gpu.uuid not in closed)
    sharing = find_sharing(settings.sharing)
    named = defaultdict[ResourceName, list[Candidate]](list)
    for candidate in plan_candidates(chosen, settings.device_plugin.mig_strategy, problems):
        named[plan_name(candidate, settings)].append(candidate)
    offered = [
        each
        for base, candidates in named.items()
        for each in replicate_devices(base, candidates, sharing, settings.device_plugin.resource_prefix)
    ]
    refused = sorted({each.resource for each in offered if len(each.resource) > NAME_MAX})
    reason = f"the name is longer than {NAME_MAX} characters: give it a shorter one"
    problems += [ResourceProblem(subject=name, reason=reason) for name in refused]
    return Offer(devices=tuple(each for each in offered if each.resource not in refused), problems=tuple(problems))


def list_free(plugin: PluginState, allocations: Iterable[Allocation]) -> frozenset[DeviceId]:
    """The healthy devices of registered resources, without the allocated ones."""
    held = {device for one in allocations for device in one.devices}
    healthy = {device.id for one in plugin.resources if one.registered for device in one.devices if device.healthy}
    return frozenset(healthy - held)
