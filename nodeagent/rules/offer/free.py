"""Which devices somebody could get now, by the list that the kubelet has and by who holds what; pure."""

from collections.abc import Iterable

from nodeagent.model.allocation import Allocation
from nodeagent.model.ids import DeviceId
from nodeagent.model.plugin import PluginState


def list_free(plugin: PluginState, allocations: Iterable[Allocation]) -> frozenset[DeviceId]:
    """What is healthy in the list that the kubelet has, and held by nobody."""
    held = {device for one in allocations for device in one.devices}
    healthy = {device.id for one in plugin.resources if one.registered for device in one.devices if device.healthy}
    return frozenset(healthy - held)
