"""Whether a DaemonSet's agents and the GPUs of their nodes are ready, and which nodes are not, and why.

Owns the order of reasons: a stopped kubelet explains a pod that is not ready, and a pod that is not ready explains an
outdated condition. The nodes are those for which the DaemonSet controller has made pods: its choice is not repeated.
"""

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from typing import Final

from nodeagent.model.readiness import (
    AgentDaemonSet,
    AgentPod,
    ClusterCondition,
    FleetNode,
    Readiness,
    UnreadyNode,
)

NAMED_NODES: Final = 10
"""Nodes named in the message of a condition; the others are counted."""
NODE_MESSAGE_LENGTH: Final = 300
"""Of each named node, so that no message comes near the limit of the API server."""
SETTLE_SECONDS: Final = 10.0
"""How long every node must have been ready: an agent writes its node's condition a moment after its pod is ready."""
PAUSE_SECONDS: Final = 10.0
"""Between two writes of other words with the same status, so that a large roll-out is told in few writes."""
UNWATCHED: Final = ClusterCondition(
    status="Unknown",
    reason="NotWatched",
    message="nobody watches the nodes: see the Deployment nodeagent-cluster-status",
)
"""The condition after an orderly stop."""
_IMPAIRED: Final = "SomeGPUsUnhealthy"


def decide_readiness(
    daemon_set: AgentDaemonSet,
    pods: Iterable[AgentPod],
    nodes: Mapping[str, FleetNode],
    *,
    expects_conditions: bool = True,
) -> Readiness:
    """The readiness by all pods and nodes of the cluster; `expects_conditions` as the agents' `node_condition`."""
    agents = _choose_pods(daemon_set, pods)
    unready: list[UnreadyNode] = []
    ready: list[tuple[AgentPod, FleetNode]] = []
    for name, pod in sorted(agents.items()):
        node = nodes.get(name)
        judged = _judge(name, pod, node, expects_conditions=expects_conditions)
        if isinstance(judged, UnreadyNode):
            unready.append(judged)
        else:
            ready.append((pod, judged))
    missing = max(0, daemon_set.desired - len(agents))
    total = len(agents) + missing
    without_gpus = sum(node.condition is None and not node.has_gpus for _, node in ready)
    reason, message = _summarize(daemon_set, unready, missing, total) or (
        ("AllNodesReady", f"{_count(total)} ready: {total - without_gpus} with GPUs, {without_gpus} without")
        if total
        else ("NoNodes", "the DaemonSet chooses no node")
    )
    return Readiness(
        namespace=daemon_set.namespace,
        name=daemon_set.name,
        ready=reason in {"AllNodesReady", "NoNodes"},
        reason=reason,
        message=message,
        nodes=total,
        ready_nodes=len(ready),
        nodes_without_gpus=without_gpus,
        impaired_nodes=tuple(
            node.name for _, node in ready if node.condition is not None and node.condition.reason == _IMPAIRED
        ),
        nodes_without_agent=missing,
        unready_nodes=tuple(unready),
        versions=_count_by(pod.image_tag for pod, _ in ready),
        models=_count_by(node.model for _, node in ready if node.model),
    )


def render_condition(readiness: Readiness) -> ClusterCondition:
    """The condition of the DaemonSet."""
    return ClusterCondition(
        status="True" if readiness.ready else "False", reason=readiness.reason, message=readiness.message
    )


def decide_write_delay(
    present: ClusterCondition | None,
    wanted: ClusterCondition,
    *,
    wanted_status_seconds: float,
    unwritten_seconds: float,
) -> float | None:
    """Seconds until the wanted condition is to be written; `None` if the condition is written already.

    Bad news is written at once; `wanted_status_seconds` is how long the wanted status has been wanted, and
    `unwritten_seconds` the time since the last write.
    """
    if present == wanted:
        return None
    if present is not None and present.status == wanted.status:
        return find_rest(PAUSE_SECONDS, unwritten_seconds)
    return find_rest(SETTLE_SECONDS, wanted_status_seconds) if wanted.status == "True" else 0.0


def find_rest(whole_seconds: float, passed_seconds: float) -> float:
    """The rest of a time in whole milliseconds: less is lost in a clock's rounding, and waiting for less never ends."""
    return max(0.0, round(whole_seconds - passed_seconds, 3))


def _choose_pods(daemon_set: AgentDaemonSet, pods: Iterable[AgentPod]) -> dict[str, AgentPod]:
    """The pod of each node: during a roll-out a node has an ending pod beside its next pod."""
    chosen: dict[str, AgentPod] = {}
    for pod in pods:
        before = chosen.get(pod.node)
        if pod.owner == daemon_set.uid and (before is None or _rank(pod) < _rank(before)):
            chosen[pod.node] = pod
    return chosen


def _rank(pod: AgentPod) -> tuple[bool, bool, str]:
    return pod.is_ending, not pod.is_ready, pod.uid


def _judge(name: str, pod: AgentPod, node: FleetNode | None, *, expects_conditions: bool) -> FleetNode | UnreadyNode:
    """The ready node, or what is wrong."""
    where = f"kubectl --namespace {pod.namespace}"
    if node is None:
        reason, message, remedy = "NodeMissing", f"pod {pod.name} has no node", f"{where} get pod {pod.name}"
    elif not node.is_kubelet_ready:
        reason, message = "KubeletNotReady", "the kubelet does not report that it is ready"
        remedy = f"kubectl describe node {name}"
    elif pod.is_ending or not pod.is_ready:
        message = f"pod {pod.name} is {'ending' if pod.is_ending else 'not ready'}"
        reason, message = "AgentNotReady", f"{message}: {pod.trouble}" if pod.trouble else message
        remedy = f"{where} describe pod {pod.name}"
    else:
        return _judge_gpus(node, pod, where) if expects_conditions else node
    return UnreadyNode(name=name, reason=reason, message=message, remedy=remedy)


def _judge_gpus(node: FleetNode, pod: AgentPod, where: str) -> FleetNode | UnreadyNode:
    condition = node.condition
    if condition is not None and condition.status != "True":
        remedy = f"{where} exec {pod.name} -- nodeagent status"
        return UnreadyNode(name=node.name, reason=condition.reason, message=condition.message, remedy=remedy)
    if condition is None and node.has_gpus:
        return UnreadyNode(
            name=node.name,
            reason="ConditionMissing",
            message="the agent has not said whether the GPUs are ready",
            remedy=f"{where} logs {pod.name} --tail 50",
        )
    return node


def _summarize(
    daemon_set: AgentDaemonSet, unready: list[UnreadyNode], missing: int, total: int
) -> tuple[str, str] | None:
    """The reason and the message of what is not ready; `None` if all is."""
    if daemon_set.observed_generation < daemon_set.generation:
        return "NotObserved", "the DaemonSet controller has not seen the newest specification yet"
    if unready:
        named = "; ".join(_name_nodes(unready))
        without = f"; {_count(missing)} without an agent" if missing else ""
        return "NodesNotReady", f"{len(unready)} of {_count(total)} not ready: {named}{without}"
    if missing:
        return "AgentsMissing", (
            f"{missing} of {_count(total)} without an agent: the DaemonSet controller has made no pod:"
            f" kubectl --namespace {daemon_set.namespace} describe daemonset {daemon_set.name}"
        )
    if daemon_set.updated < daemon_set.desired:
        return "RollOutUnderWay", f"{daemon_set.updated} of {daemon_set.desired} agents have the newest specification"
    return None


def _name_nodes(unready: list[UnreadyNode]) -> Iterator[str]:
    for node in unready[:NAMED_NODES]:
        yield f"{node.name}: {node.reason}: {_shorten(node.message)}"
    if len(unready) > NAMED_NODES:
        yield f"and {len(unready) - NAMED_NODES} more"


def _shorten(text: str) -> str:
    return text if len(text) <= NODE_MESSAGE_LENGTH else f"{text[: NODE_MESSAGE_LENGTH - 1]}…"


def _count(nodes: int) -> str:
    return f"{nodes} node is" if nodes == 1 else f"{nodes} nodes are"


def _count_by(names: Iterable[str]) -> dict[str, int]:
    return dict(sorted(Counter(names).items()))
