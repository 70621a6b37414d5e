"""The list of devices that the kubelet holds for a resource.

Owns which device is shown healthy, and for how long changes are gathered before they are sent.
A device that a container still holds stays in the list, unhealthy, when the node has it no more: the kubelet would
otherwise show the pod a healthy device that is gone.
"""

from collections.abc import Collection, Iterable
from typing import NamedTuple

from nodeagent.components.deviceplugin.offer import PluginDevice, Resource
from nodeagent.model.gpu import Inventory
from nodeagent.model.health import HealthReport, Verdict
from nodeagent.model.ids import DeviceId
from nodeagent.model.plugin import AdvertisedDevice


class View(NamedTuple):
    """What is known of the devices' fitness."""

    inventory: Inventory
    health: HealthReport | None
    """`None` where nobody judges health on this node."""
    blocked: str = ""
    """Why no device at all may be handed out; empty when they may."""


def explain_unfitness(device: PluginDevice, view: View) -> str:
    """Why this device must not be handed out now; empty when it may be."""
    if device.withheld or view.blocked:
        return device.withheld or view.blocked
    gpu = view.inventory.find_gpu(device.gpu)
    if gpu is None or gpu.lost:
        return f"GPU {device.gpu} is lost{': ' + gpu.lost if gpu else ''}"
    if view.health is None:
        return ""
    health = view.health.find_device(device.uuid)
    if health is None:
        return "its health is not known yet"
    if health.verdict in (Verdict.HEALTHY, Verdict.SUSPECT):
        return ""
    return health.reason or f"its health is {health.verdict}"


def plan_list(resource: Resource, view: View, held: Iterable[DeviceId] = ()) -> tuple[AdvertisedDevice, ...]:
    """The whole list: every device in index order, then those that are gone but held."""
    distinct = {device.uuid: device for device in resource.devices}
    fitness = {uuid: not explain_unfitness(device, view) for uuid, device in distinct.items()}
    known = {device.id for device in resource.devices}
    return (
        *(
            AdvertisedDevice(id=device.id, healthy=fitness[device.uuid], numa_node=device.numa_node)
            for device in resource.devices
        ),
        *(AdvertisedDevice(id=name, healthy=False) for name in sorted(set(held) - known)),
    )


def decide_pause(
    sent: Collection[AdvertisedDevice] | None,
    wanted: Collection[AdvertisedDevice],
    changed_seconds_ago: float,
    window_seconds: float,
) -> float | None:
    """How long to go on gathering changes before the list is sent; `None` when there is nothing to send.

    One fault often hits several devices within milliseconds, and each list makes the kubelet rewrite its checkpoint.
    The first list is sent at once.
    """
    if sent is not None and tuple(sent) == tuple(wanted):
        return None
    return 0.0 if sent is None else max(0.0, window_seconds - changed_seconds_ago)
