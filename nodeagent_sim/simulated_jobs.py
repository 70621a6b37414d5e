"""Who works on simulated GPUs in a real cluster: only pods with allocations in the journal."""

from nodeagent.core.channels.bus import Bus
from nodeagent.edge.simulated.source import SimulatedGpus
from nodeagent.model.allocation import AllocationTable
from nodeagent.model.cluster import ClusterNode
from nodeagent.model.plugin import PluginState
from nodeagent.rules.ids import find_uuid


async def follow_journal(bus: Bus, gpus: SimulatedGpus) -> None:
    """Set the simulated jobs, once there is a kubelet or an API server; before, jobs come and go by themselves."""
    is_in_cluster = False
    with bus.watch_all(ClusterNode, PluginState, AllocationTable, client="simulated jobs") as states:
        async for node, plugin, table in states:
            is_registered = plugin is not None and any(one.registered for one in plugin.value.resources)
            is_in_cluster = is_in_cluster or node is not None or is_registered
            if is_in_cluster:
                gpus.set_holders(list_holders(table.value if table is not None else AllocationTable()))


def list_holders(table: AllocationTable) -> dict[str, str]:
    """The holder of each given device, by UUID.

    Without claims: their pods have ended when a claim is removed, and the journal keeps the claim until the device is
    gone, which is impossible under a running job.
    """
    return {
        find_uuid(device): f"{one.pod.namespace}/{one.pod.name}" if one.pod is not None else one.resource
        for one in table.allocations
        for device in one.devices
    }
