"""Node requests read from labels and annotations, and the decisions on the taints of start-up and brake.

Owns the keys of the pause protocol, and the rules for the taints.
"""

from collections.abc import Collection, Mapping
from typing import Final

from nodeagent.config.named import LABEL
from nodeagent.model.cluster import (
    DEPLOY_LABEL,
    MIG_CONFIG_LABEL,
    MIG_STATE_LABEL,
    MIG_UNDER_WAY,
    PAUSED_FOR_MIG,
    PAUSED_FOR_UPGRADE,
    ClusterNode,
    NodeRequests,
    Taint,
)
from nodeagent.model.cordons import CORDON_ANNOTATION, HAMI_CORDON_ANNOTATION, CordonSource
from nodeagent.model.mig import MigState
from nodeagent.model.offering import Offering

BRAKE_TAINT_SECONDS: Final = 20.0
"""The kubelet tells the API server of fewer GPUs within ten seconds; until then schedulers would send pods to them."""
_PAUSED = "paused-for-"
_OUR_JOBS = (
    "container-toolkit",
    "operator-validator",
    "device-plugin",
    "gpu-feature-discovery",
    "dcgm",
    "dcgm-exporter",
    "client",
)
"""Operands whose work the agent does, and `client`, which stands for every holder of handles."""


def read_node_requests(node: ClusterNode, *, cuts: bool = False) -> NodeRequests:
    """All node requests of the node; `cuts` where the agent itself changes MIG layouts, and pauses others for it."""
    labels, annotations = node.labels, node.annotations
    return NodeRequests(
        pause=find_pause(labels, (PAUSED_FOR_UPGRADE, *((PAUSED_FOR_MIG,) if cuts else ()))),
        configuration=labels.get(LABEL, ""),
        mig_config=labels.get(MIG_CONFIG_LABEL, ""),
        mig_state=labels.get(MIG_STATE_LABEL, ""),
        gpu_cordon=annotations.get(CORDON_ANNOTATION, ""),
        hami_cordon=annotations.get(HAMI_CORDON_ANNOTATION, ""),
    )


def find_pause(labels: Mapping[str, str], own: Collection[str] = ()) -> str:
    """The label that pauses the agent, as `key=value`; empty without a pause. The agent's own values pause others."""
    for job in _OUR_JOBS:
        value = labels.get(DEPLOY_LABEL + job, "")
        if _PAUSED in value and value not in own:
            return f"{DEPLOY_LABEL}{job}={value}"
    return ""


def decide_mig_label(state: MigState | None, node: ClusterNode) -> dict[str, str | None]:
    """The change of the label for the state of MIG layouts, `None` to remove the label; empty for no change.

    Without a node request the label keeps the outcome of the last layout, for readers waiting for it; a request
    withdrawn before its end leaves no state under way.
    """
    before = node.labels.get(MIG_STATE_LABEL, "")
    if state is None or state.standing == before:
        return {}
    if state.standing:
        return {MIG_STATE_LABEL: state.standing}
    is_over = not state.changes and not node.labels.get(MIG_CONFIG_LABEL, "")
    return {MIG_STATE_LABEL: None} if is_over and before in MIG_UNDER_WAY else {}


def parse_taint(text: str) -> Taint:
    """`key[=value]:Effect`, checked by the configuration."""
    name, _, effect = text.rpartition(":")
    key, _, value = name.partition("=")
    return Taint(key=key, effect=effect, value=value)


def is_brake_taint_due(offering: Offering | None, now_seconds: float) -> bool:
    """Whether the brake closed a GPU so lately that the kubelet may still count the GPU for schedulers."""
    cordons = (one for door in (offering.doors if offering is not None else ()) for one in door.cordons)
    closed = (one.since_seconds for one in cordons if one.source is CordonSource.BRAKE)
    return any(since is not None and 0 <= now_seconds - since < BRAKE_TAINT_SECONDS for since in closed)


def decide_taint(*, present: bool, ready: bool, was_ready: bool, put_again: bool) -> bool | None:
    """Whether to add or remove the start-up taint; `None` for no change."""
    if present and ready:
        return False
    if not present and not ready and was_ready and put_again:
        return True
    return None
