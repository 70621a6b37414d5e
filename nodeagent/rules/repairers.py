"""Marks of people and other programs on the node, and what they say: who has the node, and who wants no repair of it.

Refuses to judge the marks: a node that another program repairs is left to that program.
"""

from collections.abc import Iterator
from typing import Final

from nodeagent.model.cluster import ClusterNode
from nodeagent.model.repairers import MANAGED_LABEL, RELEASE_TAINTS, REPAIRS_LABEL, SKIP_ANNOTATION, STATE_LABEL

_STATES: Final = {
    "quarantined": "NVSentinel keeps new pods away from this node",
    "draining": "NVSentinel has the pods of this node leave",
    "drain-succeeded": "NVSentinel has drained this node and is about to repair it",
    "drain-failed": "NVSentinel could not drain this node and waits for a person",
    "remediating": "NVSentinel repairs this node",
    "remediation-succeeded": "NVSentinel has asked for a repair of this node and waits for its end",
    "remediation-failed": "NVSentinel could not repair this node and waits for a person",
}

_UNSCHEDULABLE: Final = "node.kubernetes.io/unschedulable"
_MAINTENANCE: Final = frozenset(
    {"DrainInProgress", "Drained", "MaintenancePlanned", "MaintenanceInProgress", "GracefulNodeShutdownInProgress"}
)
"""Conditions of a node under maintenance, as Kubernetes names them."""


def describe_marks(node: ClusterNode) -> str:
    """What NVSentinel does with the node, with the mark that says so; empty without a mark."""
    return "; ".join(_list_marks(node))


def is_left_to_others(node: ClusterNode) -> bool:
    """Whether NVSentinel itself has the node left alone."""
    return node.labels.get(MANAGED_LABEL) == "false" or any(each.key in RELEASE_TAINTS for each in node.taints)


def _list_marks(node: ClusterNode) -> Iterator[str]:
    state = node.labels.get(STATE_LABEL, "")
    if state:
        yield f"{_STATES.get(state, 'NVSentinel has this node')} ({STATE_LABEL}={state})"
    for taint in node.taints:
        if taint.key in RELEASE_TAINTS:
            yield f"NVSentinel has left this node to another program ({taint.key}={taint.value}:{taint.effect})"
    if node.labels.get(MANAGED_LABEL) == "false":
        yield f"NVSentinel leaves this node alone ({MANAGED_LABEL}=false)"


def list_vetoes(node: ClusterNode) -> Iterator[str]:
    """The marks that forbid a repair of the agent, each named as it stands on the node."""
    if node.labels.get(REPAIRS_LABEL) == "off":
        yield f"{REPAIRS_LABEL}=off"
    if node.labels.get(STATE_LABEL):
        yield f"{STATE_LABEL}={node.labels[STATE_LABEL]}"
    if node.labels.get(MANAGED_LABEL) == "false":
        yield f"{MANAGED_LABEL}=false"
    for taint in node.taints:
        if taint.key in RELEASE_TAINTS or taint.key == _UNSCHEDULABLE:
            yield f"{taint.key}={taint.value}:{taint.effect}" if taint.value else f"{taint.key}:{taint.effect}"
    if SKIP_ANNOTATION in node.annotations:
        yield SKIP_ANNOTATION
    for condition in node.other_conditions:
        if condition.type in _MAINTENANCE and condition.status == "True":
            yield f"condition {condition.type}"
    if node.is_going:
        yield "the deletion of the node"
