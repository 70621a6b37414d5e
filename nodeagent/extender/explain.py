"""Why a pod is on its node, or nowhere: every node's answer, and the evaluators' reasons for the best nodes.

Owns the record for `GET /explain`, decided at the request by the same judgement as filter.
"""

from collections import defaultdict
from collections.abc import Mapping
from typing import Final

from msgspec import field

from nodeagent.extender.cluster import Cluster
from nodeagent.extender.decide import Decider
from nodeagent.extender.gpu_pod import GpuPod
from nodeagent.model.values import Value
from nodeagent.model.wording import render_bytes
from nodeagent.rules.placement.place import render_placement
from nodeagent.rules.placement.space import GpuRoom

NODES_LISTED: Final = 10
"""The most nodes reported in full, and the most names for each reason; the others are counted."""


class GpuLine(Value, frozen=True):
    """A GPU as the extender counts it."""

    index: int
    uuid: str
    free_cores: int
    free_memory: str
    users: int
    withheld: str = ""


class NodeStory(Value, frozen=True):
    """A node, and the pod's placement there, possible or present."""

    node: str
    containers: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    """The containers' placements by name, in lines of text."""
    gpus: tuple[GpuLine, ...] = ()


class Reason(Value, frozen=True):
    """Why some nodes do not fit."""

    text: str
    count: int
    nodes: tuple[str, ...]


class Story(Value, frozen=True):
    """The whole explanation of one pod."""

    pod: str
    asks: Mapping[str, str]
    """The containers' demands by name, in words."""
    state: str
    fits: int
    best: tuple[NodeStory, ...]
    reasons: tuple[Reason, ...]
    counted: NodeStory | None = None
    """The node where the pod counts now."""


def explain_pod(cluster: Cluster, decider: Decider, pod: GpuPod) -> Story:
    """Judge every node as if the pod came now and had nothing yet."""
    demand = pod.demand
    assert demand is not None
    state = _describe_state(cluster, pod)
    with cluster.aside(pod.uid):
        found = decider.filter(pod, tuple(cluster.nodes), only_best=False)
        best = tuple(
            _describe_node(cluster, decider, pod, name) for name in decider.list_best(pod, found.fitting, NODES_LISTED)
        )
    grouped: defaultdict[str, list[str]] = defaultdict(list)
    for name, text in (*found.failed.items(), *found.hopeless.items()):
        grouped[text].append(name)
    ordered = sorted(grouped.items(), key=lambda each: (-len(each[1]), each[0]))
    hold = cluster.holds.get(pod.uid)
    node = hold.node if hold is not None else pod.node
    return Story(
        pod=pod.title,
        asks={each.name: each.demand.describe() for each in demand.containers},
        state=state,
        fits=len(found.fitting),
        best=best,
        reasons=tuple(
            Reason(text=text, count=len(names), nodes=tuple(sorted(names)[:NODES_LISTED])) for text, names in ordered
        ),
        counted=NodeStory(node=node, gpus=_describe_gpus(cluster, pod, node)) if node else None,
    )


def _describe_state(cluster: Cluster, pod: GpuPod) -> str:
    hold = cluster.holds.get(pod.uid)
    if hold is not None:
        return f"promised to {hold.node}, not bound yet"
    if not pod.node:
        return "waiting: no node has been chosen"
    account = cluster.find_space(pod.node, pod.device_class)
    if account is None:
        return f"bound to {pod.node}, which gives out no parts of GPUs or is not known"
    if pod.uid in account.guessed:
        return f"bound to {pod.node}; which GPUs it has nobody says, so it is counted where the node would put it"
    return f"bound to {pod.node}, on {', '.join(sorted({fraction.gpu for fraction in account.taken[pod.uid]}))}"


def _describe_node(cluster: Cluster, decider: Decider, pod: GpuPod, name: str) -> NodeStory:
    demand = pod.demand
    assert demand is not None
    names = {each.number: each.name for each in demand.containers}
    placements = decider.place(pod, name).placements
    told = {names[number]: render_placement(placement) for number, placement in placements.items()}
    return NodeStory(node=name, containers=told, gpus=_describe_gpus(cluster, pod, name))


def _describe_gpus(cluster: Cluster, pod: GpuPod, name: str) -> tuple[GpuLine, ...]:
    account = cluster.find_space(name, pod.device_class)
    return tuple(map(_describe_room, account.space.rooms)) if account is not None else ()


def _describe_room(room: GpuRoom) -> GpuLine:
    return GpuLine(
        index=room.index,
        uuid=room.gpu,
        free_cores=room.free_cores,
        free_memory=render_bytes(room.free_bytes),
        users=room.users,
        withheld=room.withheld,
    )
