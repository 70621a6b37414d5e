"""What goes on around simulated GPUs: a stand-in kubelet whose pods come and go, or the pods of a real cluster."""

from pathlib import Path

import anyio

from nodeagent.components.fractions.decide import name_files
from nodeagent.core.channels.bus import Bus
from nodeagent.model.allocation import AllocationTable
from nodeagent.model.cluster import ClusterNode
from nodeagent.model.journal import FractionTable
from nodeagent.model.plugin import PluginState
from nodeagent.model.ports import GpuSource
from nodeagent.rules.ids import find_uuid
from nodeagent_sim.gpus.containers import FractionWork
from nodeagent_sim.gpus.source import SimulatedGpus
from nodeagent_sim.kubelet.kubelet import StandInKubelet
from nodeagent_sim.kubelet.pod_script import PodScript
from nodeagent_sim.kubelet.pods import PodPhase


async def run_stand_in_kubelet(root: Path, bus: Bus, gpus: GpuSource, *, pods: int, seed: int) -> None:
    """Play kubelet and scheduler under `root` until cancelled, with so many pods at a time."""
    kubelet = StandInKubelet(root, seed=seed)
    async with anyio.create_task_group() as tasks:
        await tasks.start(kubelet.run, name="stand-in kubelet")
        if isinstance(gpus, SimulatedGpus):
            tasks.start_soon(_follow_holders, kubelet, gpus, name="holders")
            tasks.start_soon(_follow_pods, kubelet, bus, gpus, name="holders of parts")
            tasks.start_soon(_follow_fractions, kubelet, bus, gpus, name="parts")
        if pods:
            tasks.start_soon(PodScript(kubelet, lanes=pods, seed=seed).run, name="pods")


async def _follow_holders(kubelet: StandInKubelet, gpus: SimulatedGpus) -> None:
    """Report the holders of GPUs to the simulated hardware; replicas of a GPU count as a single user."""
    while True:
        holders = read_holders(kubelet)
        gpus.set_holders(holders)
        await kubelet.wait_until(lambda: read_holders(kubelet) != holders)  # noqa: B023 - awaited within the turn


def read_holders(kubelet: StandInKubelet) -> dict[str, str]:
    """Pod by device UUID."""
    return {find_uuid(device): f"{pod.namespace}/{pod.name}" for device, pod in kubelet.holders().items()}


async def _follow_pods(kubelet: StandInKubelet, bus: Bus, gpus: SimulatedGpus) -> None:
    """Let a pod with fractions work only while running: fractions with live processes are not given back."""
    while True:
        running = _find_running(kubelet)
        _announce_working(kubelet, bus, gpus)
        await kubelet.wait_until(lambda: _find_running(kubelet) != running)  # noqa: B023 - awaited within the turn


async def _follow_fractions(kubelet: StandInKubelet, bus: Bus, gpus: SimulatedGpus) -> None:
    with bus.watch(FractionTable, client="simulated containers") as tables:
        async for _ in tables:
            _announce_working(kubelet, bus, gpus)


def _announce_working(kubelet: StandInKubelet, bus: Bus, gpus: SimulatedGpus) -> None:
    table = bus.latest(FractionTable)
    gpus.set_works(plan_works(table.value if table is not None else FractionTable(), _find_running(kubelet)))


def _find_running(kubelet: StandInKubelet) -> frozenset[str]:
    return frozenset(pod.uid for pod in kubelet.pods if pod.phase is PodPhase.RUNNING)


def plan_works(table: FractionTable, running: frozenset[str]) -> tuple[FractionWork, ...]:
    """The work of each container of running pods on its fractions."""
    return tuple(
        FractionWork(
            pod=f"{binding.pod.namespace}/{binding.pod.name}",
            pod_uid=binding.pod.uid,
            container=binding.container,
            folder=name_files(binding),
            gpu=part.gpu,
            cores=part.cores,
            memory_mib=part.memory_bytes >> 20,
        )
        for _, binding in sorted(table.bindings.items())
        if binding.pod.uid in running and binding.pod.name
        for part in binding.parts
    )


async def follow_journal(gpus: SimulatedGpus, bus: Bus) -> None:
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
