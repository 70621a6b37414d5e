"""Marks of other programs on the node: NVSentinel's labels and taint, and what they say.

Refuses to judge the marks: a node that another program repairs is left to that program.
"""

from collections.abc import Iterator
from typing import Final

from nodeagent.model.cluster import ClusterNode
from nodeagent.model.repairers import MANAGED_LABEL, RELEASE_TAINTS, STATE_LABEL

_STATES: Final = {
    "quarantined": "NVSentinel keeps new pods away from this node",
    "draining": "NVSentinel has the pods of this node leave",
    "drain-succeeded": "NVSentinel has drained this node and is about to repair it",
    "drain-failed": "NVSentinel could not drain this node and waits for a person",
    "remediating": "NVSentinel repairs this node",
    "remediation-succeeded": "NVSentinel has asked for a repair of this node and waits for its end",
    "remediation-failed": "NVSentinel could not repair this node and waits for a person",
}


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
