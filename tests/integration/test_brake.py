"""A GPU on which every pod dies at once, and a queue of fifty pods on a real kubelet and scheduler."""

import time

from tests.integration.cluster.agent import AgentUnderTest
from tests.integration.cluster.control import Cluster
from tests.integration.cluster.layout import NODE_NAME
from tests.integration.cluster.pods import Pods, render_pod
from tests.integration.cluster.processes import wait_until
from tests.integration.conftest import MakeAgent
from tests.integration.test_allocation_modes import GPU, SETTINGS, _wait_counts
from tests.integration.test_cordon import list_conditions, read_events

QUEUE, LOST_MAX = 50, 5
BAD = 3
QUEUE_SECONDS = 480.0
TAINT = "nvidia.com/gpu-brake"


def count_phases(node: Cluster) -> dict[str, int]:
    found = node.run("kubectl", "get", "pods", "-l", "queue=brake", "-o", "jsonpath={.items[*].status.phase}").split()
    return {phase: found.count(phase) for phase in ("Pending", "Running", "Succeeded", "Failed")}


def has_taint(node: Cluster) -> bool:
    return TAINT in node.run("kubectl", "get", "node", NODE_NAME, "-o", "jsonpath={.spec.taints[*].key}")


def break_each_start(agent: AgentUnderTest, uuid: str, broken: set[int]) -> None:
    """A fault for each pod that has been given the bad GPU since the last look."""
    for row in agent.get_json("/api/v1/allocations"):
        if uuid in row["devices"] and row["number"] not in broken:
            broken.add(row["number"])
            agent.break_it("xid", "94", str(BAD))


def test_a_queue_of_fifty_loses_five_pods_at_most(node: Cluster, pods: Pods, make_agent: MakeAgent) -> None:
    """The rest end well on the other GPUs; a killed agent keeps the GPU closed, and a person's word opens it."""
    agent = make_agent(gpus="simulated:dgx-h100", settings=SETTINGS)
    _wait_counts(node, 8, 8)
    uuid = next(one["gpu"]["uuid"] for one in agent.get_json("/api/v1/gpus")["gpus"] if one["gpu"]["index"] == BAD)
    script = f'if [ "$NVIDIA_VISIBLE_DEVICES" = {uuid} ]; then sleep 2; exit 1; fi; sleep 4'
    for number in range(QUEUE):
        # The taint must count: pods of scenarios tolerate everything otherwise.
        pod = render_pod(f"queued-{number}", ("sh", "-c", script), limits={GPU: 1}, spec={"tolerations": []})
        pod["metadata"]["labels"] = {"queue": "brake"}
        pods.create(pod)
    broken = set[int]()
    was_tainted, until = False, time.monotonic() + QUEUE_SECONDS
    while (phases := count_phases(node))["Succeeded"] + phases["Failed"] < QUEUE:
        assert time.monotonic() < until, phases
        break_each_start(agent, uuid, broken)
        was_tainted = was_tainted or has_taint(node)
    assert 3 <= phases["Failed"] <= LOST_MAX, phases
    assert was_tainted
    wait_until("the taint to go", lambda: TAINT if has_taint(node) else None, timeout_seconds=60)
    _wait_counts(node, 8, 7)
    agent.restart()
    _wait_counts(node, 8, 7)
    (detail,) = list_conditions(agent.get_json("/api/v1/conditions"), "gpu-braked")
    assert detail.startswith(f"GPU {BAD}: closed by the brake: 3 starts ended within 60 s, beside XID 94 of the GPU")
    assert "nodeagent gpu uncordon" in read_events(node, "GPUBraked")
    agent.run("gpu", "uncordon", str(BAD))
    _wait_counts(node, 8, 8)
    assert list_conditions(agent.get_json("/api/v1/conditions"), "gpu-braked") == []
