"""Who works on simulated GPUs in a real cluster: the pods that have them, as the journal says, and nobody else."""

from nodeagent.core.channels.bus import Bus
from nodeagent.edge.simulated.source import SimulatedGpus
from nodeagent.model.allocation import AllocationTable
from nodeagent.model.cluster import ClusterNode
from nodeagent.model.plugin import PluginState
from nodeagent.rules.ids import find_uuid


async def follow_journal(bus: Bus, gpus: SimulatedGpus) -> None:
    """Tell the simulated hardware, once there is a kubelet or an API server; before, jobs come and go by themselves."""
    is_in_cluster = False
    with bus.watch_all(ClusterNode, PluginState, AllocationTable, client="simulated jobs") as states:
        async for node, plugin, table in states:
            is_registered = plugin is not None and any(one.registered for one in plugin.value.resources)
            is_in_cluster = is_in_cluster or node is not None or is_registered
            if is_in_cluster:
                gpus.set_holders(list_holders(table.value if table is not None else AllocationTable()))


def list_holders(table: AllocationTable) -> dict[str, str]:
    """By the UUID of each device that is given out, to whom.

    Not those of claims: the pods have ended when a claim is put away, and the journal has it until its device is gone,
    which cannot go while a job is on it.
    """
    return {
        find_uuid(device): f"{one.pod.namespace}/{one.pod.name}" if one.pod is not None else one.resource
        for one in table.allocations
        for device in one.devices
    }
