"""A GPU on which every pod dies at once, and a queue of fifty pods on a real kubelet and scheduler."""

import pytest

from tests.integration.cluster.agent import AgentUnderTest
from tests.integration.cluster.control import Cluster
from tests.integration.cluster.layout import NODE_NAME
from tests.integration.cluster.pods import Pods, render_pod
from tests.integration.cluster.processes import wait_until
from tests.integration.conftest import MakeAgent
from tests.integration.test_allocation_modes import GPU, SETTINGS, _find_indexes, _wait_counts
from tests.integration.test_cordon import list_conditions, read_events

pytestmark = pytest.mark.timeout(480)
QUEUE, LOST_MAX = 50, 5
BRAKE_SECONDS, QUEUE_SECONDS = 120.0, 240.0
TAINT = "nvidia.com/gpu-brake"


def count_phases(node: Cluster) -> dict[str, int]:
    found = node.run("kubectl", "get", "pods", "-l", "queue=brake", "-o", "jsonpath={.items[*].status.phase}").split()
    return {phase: found.count(phase) for phase in ("Pending", "Running", "Succeeded", "Failed")}


def has_taint(node: Cluster) -> bool:
    return TAINT in node.run("kubectl", "get", "node", NODE_NAME, "-o", "jsonpath={.spec.taints[*].key}")


def break_each_start(agent: AgentUnderTest, bad: str, index: int, broken: set[int]) -> None:
    """A fault that health forgives, for each pod that has been given the bad GPU since the last look."""
    for row in agent.get_json("/api/v1/allocations"):
        if bad in row["devices"] and row["number"] not in broken:
            broken.add(row["number"])
            agent.break_it("xid", "63", str(index))


def test_a_queue_of_fifty_loses_five_pods_at_most(node: Cluster, pods: Pods, make_agent: MakeAgent) -> None:
    """A pod has the seven good GPUs, so that the bad one is free; the rest of the queue ends well on the good ones."""
    agent = make_agent(gpus="simulated:dgx-h100", settings=SETTINGS)
    _wait_counts(node, 8, 8)
    held = _find_indexes(agent, pods.run(render_pod("holder", limits={GPU: 7})))
    gpus = {one["gpu"]["index"]: one["gpu"]["uuid"] for one in agent.get_json("/api/v1/gpus")["gpus"]}
    (index,) = gpus.keys() - held
    script = f'sleep 1; test "$NVIDIA_VISIBLE_DEVICES" != {gpus[index]}'
    for number in range(QUEUE):
        # The taint must count: pods of scenarios tolerate everything otherwise.
        pod = render_pod(f"queued-{number}", ("sh", "-c", script), limits={GPU: 1}, spec={"tolerations": []})
        pod["metadata"]["labels"] = {"queue": "brake"}
        pods.create(pod)
    broken = set[int]()

    def find_braked() -> str | None:
        break_each_start(agent, gpus[index], index, broken)
        braked = list_conditions(agent.get_json("/api/v1/conditions"), "gpu-braked")
        return None if braked and has_taint(node) else f"{braked}, {count_phases(node)}"

    wait_until("the brake to close the GPU", find_braked, timeout_seconds=BRAKE_SECONDS)
    _wait_counts(node, 8, 7)
    wait_until("the taint to go", lambda: TAINT if has_taint(node) else None, timeout_seconds=60)
    agent.restart()
    _wait_counts(node, 8, 7)
    (detail,) = list_conditions(agent.get_json("/api/v1/conditions"), "gpu-braked")
    assert detail.startswith(f"GPU {index}: closed by the brake: 3 starts ended within 60 s, beside XID 63 of the GPU")
    assert "nodeagent gpu uncordon" in read_events(node, "GPUBraked")
    pods.delete("holder")

    def find_unended() -> str | None:
        phases = count_phases(node)
        return None if phases["Succeeded"] + phases["Failed"] == QUEUE else str(phases)

    wait_until("the queue to end", find_unended, timeout_seconds=QUEUE_SECONDS)
    assert 3 <= count_phases(node)["Failed"] <= LOST_MAX
    agent.run("gpu", "uncordon", str(index))
    _wait_counts(node, 8, 8)
    assert list_conditions(agent.get_json("/api/v1/conditions"), "gpu-braked") == []
