"""The devices free for a container now, by the kubelet's list and the present allocations; pure."""

from collections.abc import Iterable

from nodeagent.model.allocation import Allocation
from nodeagent.model.ids import DeviceId
from nodeagent.model.plugin import PluginState


def list_free(plugin: PluginState, allocations: Iterable[Allocation]) -> frozenset[DeviceId]:
    """The healthy devices of registered resources, without the allocated ones."""
    held = {device for one in allocations for device in one.devices}
    healthy = {device.id for one in plugin.resources if one.registered for device in one.devices if device.healthy}
    return frozenset(healthy - held)
