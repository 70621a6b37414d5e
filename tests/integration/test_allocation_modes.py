"""A GPU taken out of service and given back, on a real kubelet: nobody loses one, and nobody new gets it."""

import subprocess
import time
from typing import Any

from tests.integration.cluster.agent import COMMAND, AgentUnderTest
from tests.integration.cluster.control import Cluster
from tests.integration.cluster.pods import Pods, render_pod
from tests.integration.conftest import MakeAgent

GPU = "nvidia.com/gpu"
SETTINGS: dict[str, dict[str, Any]] = {
    "device_plugin": {"device_list_strategy": ["envvar"]},
    "kubelet": {"pod_resources_poll_seconds": 0.5},
    "journal": {"free_after_seconds": 2},
}
PATIENCE_SECONDS = 60.0


def test_a_gpu_is_drained_while_its_pod_runs_and_given_back(node: Cluster, pods: Pods, make_agent: MakeAgent) -> None:
    """The pod goes on, the node counts one GPU less, a killed agent remembers, and the end of the pod is the change."""
    agent = make_agent(gpus="simulated:dgx-h100", settings=SETTINGS)
    _wait_counts(node, 8, 8)
    name = pods.run(render_pod("train", limits={GPU: 1}))
    index = _find_index(agent, name)
    said = agent.run("gpu", "set-door", str(index), "none")
    assert f"GPU {index}: door whole until default/{name} (main) is gone, then none" in said
    # The kubelet still counts what a pod has, and gives it to nobody else.
    _wait_counts(node, 8, 7)
    agent.restart()
    assert f"default/{name} (main)" in agent.run("gpu", "doors")
    waiting = subprocess.Popen(
        [COMMAND[0], "gpu", "set-door", "--config", str(agent.config_file), str(index), "none", "--wait"],
        stdout=subprocess.PIPE,
        text=True,
    )
    try:
        pods.delete(name)
        out, _ = waiting.communicate(timeout=PATIENCE_SECONDS)
    finally:
        waiting.kill()
        waiting.wait()
    assert out.splitlines()[-1] == f"GPU {index}: door none (set by a person)"
    _wait_counts(node, 7, 7)
    seven = pods.run(render_pod("rest", limits={GPU: 7}))
    assert index not in _find_indexes(agent, seven)
    agent.run("gpu", "set-door", str(index), "configured")
    _wait_counts(node, 8, 8)
    assert _find_index(agent, pods.run(render_pod("again", limits={GPU: 1}))) == index


def _find_indexes(agent: AgentUnderTest, pod: str) -> set[int]:
    indexes = {one["gpu"]["uuid"]: one["gpu"]["index"] for one in agent.get_json("/api/v1/gpus")["gpus"]}
    deadline = time.monotonic() + PATIENCE_SECONDS
    while time.monotonic() < deadline:
        held = [one for one in agent.get_json("/api/v1/allocations") if (one["pod"] or {}).get("name") == pod]
        if held:
            return {indexes[device] for one in held for device in one["devices"]}
        time.sleep(0.2)
    raise AssertionError(f"the agent never named {pod}")


def _find_index(agent: AgentUnderTest, pod: str) -> int:
    (index,) = _find_indexes(agent, pod)
    return index


def _wait_counts(node: Cluster, capacity: int, allocatable: int) -> None:
    def probe() -> str | None:
        found = node.count(GPU, "capacity"), node.count(GPU)
        return None if found == (capacity, allocatable) else f"{found}"

    node.wait(f"{capacity} GPUs, {allocatable} to give", "kubelet", probe)
