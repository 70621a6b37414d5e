"""The rest of a simulated node: a stand-in kubelet with pods that come and go, and GPUs that are busy meanwhile."""

from pathlib import Path

import anyio

from nodeagent.app.hardware import SetHolders
from nodeagent.app.plan import SimulationPlan
from nodeagent.edge.simulated.kubelet.kubelet import StandInKubelet
from nodeagent.edge.simulated.kubelet.pod_script import PodScript
from nodeagent.rules.ids import find_uuid


async def run_stand_in_kubelet(plan: SimulationPlan, root: Path, set_holders: SetHolders | None) -> None:
    """Play kubelet and scheduler under `root` until cancelled."""
    kubelet = StandInKubelet(root, seed=plan.seed)
    async with anyio.create_task_group() as tasks:
        await tasks.start(kubelet.run, name="stand-in kubelet")
        if set_holders is not None:
            tasks.start_soon(_follow_holders, kubelet, set_holders, name="holders")
        if plan.pods:
            tasks.start_soon(PodScript(kubelet, lanes=plan.pods, seed=plan.seed).run, name="pods")


async def _follow_holders(kubelet: StandInKubelet, set_holders: SetHolders) -> None:
    """Tell the simulated hardware who works on it; replicas of one GPU are one user of it."""
    while True:
        holders = read_holders(kubelet)
        set_holders(holders)
        await kubelet.wait_until(lambda: read_holders(kubelet) != holders)  # noqa: B023 - awaited within the turn


def read_holders(kubelet: StandInKubelet) -> dict[str, str]:
    """Pod by device UUID."""
    return {find_uuid(device): f"{pod.namespace}/{pod.name}" for device, pod in kubelet.holders().items()}
