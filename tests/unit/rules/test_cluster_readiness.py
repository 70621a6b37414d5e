"""Whether a whole cluster is ready, by its DaemonSet, pods and nodes."""

import math
from collections.abc import Sequence

import pytest
from msgspec.structs import replace

from nodeagent.model.cluster import NodeCondition
from nodeagent.model.readiness import AgentDaemonSet, AgentPod, ClusterCondition, FleetNode, Readiness
from nodeagent.rules.cluster_readiness import (
    NAMED_NODES,
    NODE_MESSAGE_LENGTH,
    PAUSE_SECONDS,
    SETTLE_SECONDS,
    decide_readiness,
    decide_write_delay,
    find_rest,
    render_condition,
)

WELL = NodeCondition(status="True", reason="GPUsReady", message="8 GPUs are ready")
ILL = NodeCondition(status="False", reason="DriverMissing", message="no driver: install one")
MESSAGE_BYTES_MAX = 32 * 1024


def agents(desired: int, **changes: object) -> AgentDaemonSet:
    return replace(
        AgentDaemonSet(
            uid="ours",
            namespace="gpu",
            name="nodeagent",
            generation=2,
            observed_generation=2,
            desired=desired,
            updated=desired,
        ),
        **changes,
    )


def pod(node: str, **changes: object) -> AgentPod:
    known = AgentPod(
        uid=f"uid-{node}",
        namespace="gpu",
        name=f"nodeagent-{node}",
        owner="ours",
        node=node,
        image_tag="1.0",
        is_ready=True,
    )
    return replace(known, **changes)


def gpu_node(name: str, **changes: object) -> FleetNode:
    known = FleetNode(name=name, has_gpus=True, model="NVIDIA-H100", is_kubelet_ready=True, condition=WELL)
    return replace(known, **changes)


def judge(
    pods: Sequence[AgentPod],
    nodes: Sequence[FleetNode],
    daemon_set: AgentDaemonSet | None = None,
    *,
    expects_conditions: bool = True,
) -> Readiness:
    known = agents(len(pods)) if daemon_set is None else daemon_set
    return decide_readiness(known, pods, {node.name: node for node in nodes}, expects_conditions=expects_conditions)


def test_all_are_ready() -> None:
    """Ready nodes are counted by version and model; a node whose agent waits for a GPU is ready."""
    pods = [pod("a"), pod("b", image_tag="1.1"), pod("c")]
    nodes = [gpu_node("a"), gpu_node("b", model=""), gpu_node("c", has_gpus=False, model="", condition=None)]
    found = judge(pods, nodes)
    assert (found.ready, found.reason) == (True, "AllNodesReady")
    assert found.message == "3 nodes are ready: 2 with GPUs, 1 without"
    assert (found.nodes, found.ready_nodes, found.nodes_without_gpus, found.unready_nodes) == (3, 3, 1, ())
    assert (found.versions, found.models) == ({"1.0": 2, "1.1": 1}, {"NVIDIA-H100": 1})
    assert render_condition(found).status == "True"


def test_a_ready_node_with_some_unhealthy_gpus_is_named() -> None:
    found = judge([pod("a")], [gpu_node("a", condition=replace(WELL, reason="SomeGPUsUnhealthy"))])
    assert (found.ready, found.impaired_nodes) == (True, ("a",))
    assert found.message == "1 node is ready: 1 with GPUs, 0 without"


def test_a_cluster_without_chosen_nodes_is_ready() -> None:
    """As a roll-out of nothing is complete; pods of other owners are not counted."""
    found = judge([pod("a", owner="another")], [gpu_node("a")], agents(0))
    assert (found.ready, found.reason, found.message) == (True, "NoNodes", "the DaemonSet chooses no node")


@pytest.mark.parametrize(
    ("agent", "node", "reason", "message", "remedy"),
    [
        (pod("a"), None, "NodeMissing", "pod nodeagent-a has no node", "kubectl --namespace gpu get pod nodeagent-a"),
        (
            pod("a", is_ready=False),
            gpu_node("a", is_kubelet_ready=False, condition=ILL),
            "KubeletNotReady",
            "the kubelet does not report that it is ready",
            "kubectl describe node a",
        ),
        (
            pod("a", is_ready=False, trouble="CrashLoopBackOff: back-off"),
            gpu_node("a", condition=ILL),
            "AgentNotReady",
            "pod nodeagent-a is not ready: CrashLoopBackOff: back-off",
            "kubectl --namespace gpu describe pod nodeagent-a",
        ),
        (
            pod("a", is_ending=True),
            gpu_node("a"),
            "AgentNotReady",
            "pod nodeagent-a is ending",
            "kubectl --namespace gpu describe pod nodeagent-a",
        ),
        (
            pod("a"),
            gpu_node("a", condition=ILL),
            "DriverMissing",
            "no driver: install one",
            "kubectl --namespace gpu exec nodeagent-a -- nodeagent status",
        ),
        (
            pod("a"),
            gpu_node("a", has_gpus=False, condition=replace(ILL, status="Unknown")),
            "DriverMissing",
            "no driver: install one",
            "kubectl --namespace gpu exec nodeagent-a -- nodeagent status",
        ),
        (
            pod("a"),
            gpu_node("a", condition=None),
            "ConditionMissing",
            "the agent has not said whether the GPUs are ready",
            "kubectl --namespace gpu logs nodeagent-a --tail 50",
        ),
    ],
    ids=["no node", "kubelet", "pod", "ending", "GPUs", "unknown", "no condition"],
)
def test_the_first_obstacle_is_named(
    agent: AgentPod, node: FleetNode | None, reason: str, message: str, remedy: str
) -> None:
    """A stopped kubelet explains the pod, and the pod explains an outdated condition."""
    found = judge([agent], [node] if node is not None else [])
    assert (found.ready, found.reason, found.ready_nodes) == (False, "NodesNotReady", 0)
    (unready,) = found.unready_nodes
    assert (unready.name, unready.reason, unready.message, unready.remedy) == ("a", reason, message, remedy)
    assert found.message == f"1 of 1 node is not ready: a: {reason}: {message}"
    assert render_condition(found) == ClusterCondition(status="False", reason="NodesNotReady", message=found.message)


@pytest.mark.parametrize("condition", [ILL, None])
def test_where_agents_write_no_conditions_their_pods_decide(condition: NodeCondition | None) -> None:
    """With `kubernetes.node_condition` off, a condition is missing or left behind."""
    assert judge([pod("a")], [gpu_node("a", condition=condition)], expects_conditions=False).ready


def test_of_two_pods_of_a_node_the_one_that_stays_counts() -> None:
    """During a roll-out the ending pod may still be ready, whatever the order of the list."""
    pods = [pod("a", uid="1", is_ending=True), pod("a", uid="2", name="next"), pod("a", uid="3", is_ready=False)]
    for order in (pods, pods[::-1]):
        found = judge(order, [gpu_node("a")], agents(1))
        assert (found.ready, found.nodes) == (True, 1)


def test_an_update_is_not_ready_until_every_pod_has_it() -> None:
    """A specification that the DaemonSet controller has not seen comes first: its counts are of the last one."""
    pods, nodes = [pod("a"), pod("b")], [gpu_node("a"), gpu_node("b")]
    unseen = judge(pods, nodes, agents(2, generation=3))
    assert (unseen.ready, unseen.reason) == (False, "NotObserved")
    rolling = judge(pods, nodes, agents(2, updated=1))
    assert (rolling.ready, rolling.reason) == (False, "RollOutUnderWay")
    assert rolling.message == "1 of 2 agents have the newest specification"


def test_chosen_nodes_without_a_pod_are_counted() -> None:
    """A quota or admission policy may refuse the pod; nobody but the controller knows the node's name."""
    alone = judge([pod("a")], [gpu_node("a")], agents(3))
    assert (alone.ready, alone.reason, alone.nodes, alone.nodes_without_agent) == (False, "AgentsMissing", 3, 2)
    assert "2 of 3 nodes are without an agent" in alone.message
    assert "kubectl --namespace gpu describe daemonset nodeagent" in alone.message
    both = judge([pod("a")], [gpu_node("a", condition=ILL)], agents(2))
    assert both.reason == "NodesNotReady"
    assert both.message.endswith("; 1 node is without an agent")


def test_a_message_is_bounded_however_many_nodes_are_not_ready() -> None:
    """The first nodes by name are named, and the others counted."""
    names = [f"node-{number:04}" for number in range(5000)]
    long = replace(ILL, message="x" * 10_000)
    found = judge([pod(name) for name in names], [gpu_node(name, condition=long) for name in names])
    assert len(found.unready_nodes) == 5000
    assert len(found.message.encode()) < MESSAGE_BYTES_MAX
    assert found.message.startswith("5000 of 5000 nodes are not ready: node-0000: DriverMissing: xxx")
    assert found.message.endswith(f"; and {5000 - NAMED_NODES} more")
    assert f"node-{NAMED_NODES - 1:04}" in found.message
    assert f"node-{NAMED_NODES:04}" not in found.message
    assert f"{'x' * (NODE_MESSAGE_LENGTH - 1)}…;" in found.message


GOOD = ClusterCondition(status="True", reason="AllNodesReady", message="2 nodes are ready")
BAD = ClusterCondition(status="False", reason="NodesNotReady", message="1 of 2 nodes are not ready")


@pytest.mark.parametrize(
    ("present", "wanted", "wanted_for", "unwritten_for", "delay"),
    [
        (GOOD, GOOD, 0.0, 0.0, None),
        (GOOD, BAD, 0.0, 0.0, 0.0),
        (None, BAD, 0.0, 0.0, 0.0),
        (None, GOOD, 0.0, math.inf, SETTLE_SECONDS),
        (BAD, GOOD, 4.0, 0.0, SETTLE_SECONDS - 4.0),
        (BAD, GOOD, SETTLE_SECONDS + 1, 0.0, 0.0),
        (BAD, replace(BAD, message="2 of 2"), 60.0, 3.0, PAUSE_SECONDS - 3.0),
        (BAD, replace(BAD, message="2 of 2"), 60.0, math.inf, 0.0),
    ],
)
def test_bad_news_is_written_at_once_and_good_news_once_it_lasts(
    present: ClusterCondition | None,
    wanted: ClusterCondition,
    wanted_for: float,
    unwritten_for: float,
    delay: float | None,
) -> None:
    """Other words with the same status wait for the pause, and nothing is written twice."""
    found = decide_write_delay(present, wanted, wanted_status_seconds=wanted_for, unwritten_seconds=unwritten_for)
    assert found == delay


def test_a_rest_that_no_clock_shows_is_none() -> None:
    """The difference of two readings is a little less than it should be, and a wait for that little moves no clock."""
    assert find_rest(SETTLE_SECONDS, SETTLE_SECONDS - 1.8e-15) == 0.0
    assert find_rest(SETTLE_SECONDS, 12.0) == 0.0
    assert find_rest(SETTLE_SECONDS, 9.5) == 0.5
    assert find_rest(SETTLE_SECONDS, -math.inf) == math.inf
