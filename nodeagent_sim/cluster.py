"""The rest of a simulated node: a stand-in kubelet whose pods come and go, and GPUs busy meanwhile."""

from pathlib import Path

import anyio

from nodeagent.app.plan import SimulationPlan
from nodeagent.components.fractions.decide import name_files
from nodeagent.core.channels.bus import Bus
from nodeagent.edge.simulated.jobs.crowd import PartWork
from nodeagent.edge.simulated.kubelet.kubelet import StandInKubelet
from nodeagent.edge.simulated.kubelet.pod_script import PodScript
from nodeagent.edge.simulated.kubelet.pods import PodPhase
from nodeagent.edge.simulated.source import SimulatedGpus
from nodeagent.model.journal import PartTable
from nodeagent.rules.ids import find_uuid


async def run_stand_in_kubelet(plan: SimulationPlan, root: Path, bus: Bus, gpus: SimulatedGpus | None) -> None:
    """Play kubelet and scheduler under `root` until cancelled."""
    kubelet = StandInKubelet(root, seed=plan.seed)
    async with anyio.create_task_group() as tasks:
        await tasks.start(kubelet.run, name="stand-in kubelet")
        if gpus is not None:
            tasks.start_soon(_follow_holders, kubelet, gpus, name="holders")
            tasks.start_soon(_follow_pods, kubelet, bus, gpus, name="holders of parts")
            tasks.start_soon(_follow_parts, kubelet, bus, gpus, name="parts")
        if plan.pods:
            tasks.start_soon(PodScript(kubelet, lanes=plan.pods, seed=plan.seed).run, name="pods")


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
        _tell_works(kubelet, bus, gpus)
        await kubelet.wait_until(lambda: _find_running(kubelet) != running)  # noqa: B023 - awaited within the turn


async def _follow_parts(kubelet: StandInKubelet, bus: Bus, gpus: SimulatedGpus) -> None:
    with bus.watch(PartTable, client="simulated containers") as tables:
        async for _ in tables:
            _tell_works(kubelet, bus, gpus)


def _tell_works(kubelet: StandInKubelet, bus: Bus, gpus: SimulatedGpus) -> None:
    table = bus.latest(PartTable)
    gpus.set_works(plan_works(table.value if table is not None else PartTable(), _find_running(kubelet)))


def _find_running(kubelet: StandInKubelet) -> frozenset[str]:
    return frozenset(pod.uid for pod in kubelet.pods if pod.phase is PodPhase.RUNNING)


def plan_works(table: PartTable, running: frozenset[str]) -> tuple[PartWork, ...]:
    """The work of each container of running pods on its fractions."""
    return tuple(
        PartWork(
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
