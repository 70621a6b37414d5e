"""What the cluster asks of this node by labels, and what is done to its start-up taint.

Owns the keys of the pause protocol, and the rule for the taint.
"""

from collections.abc import Mapping

from nodeagent.config.named import LABEL
from nodeagent.model.cluster import (
    DEPLOY_LABEL,
    MIG_CONFIG_LABEL,
    MIG_STATE_LABEL,
    MIG_UNDER_WAY,
    PAUSED_FOR_MIG,
    ClusterNode,
    ClusterWishes,
    Taint,
)
from nodeagent.model.mig import MigState

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
"""Operands whose work this agent does, and `client`, which stands for everybody with handles."""


def read_wishes(labels: Mapping[str, str], *, cuts: bool = False) -> ClusterWishes:
    """All that these labels ask for; `cuts` where this agent itself changes MIG layouts, and pauses others for it."""
    return ClusterWishes(
        pause=find_pause(labels, PAUSED_FOR_MIG if cuts else ""),
        configuration=labels.get(LABEL, ""),
        mig_config=labels.get(MIG_CONFIG_LABEL, ""),
        mig_state=labels.get(MIG_STATE_LABEL, ""),
    )


def find_pause(labels: Mapping[str, str], own: str = "") -> str:
    """The label that pauses us, as `key=value`; nothing when none does. A value that is our own pauses others."""
    for job in _OUR_JOBS:
        value = labels.get(DEPLOY_LABEL + job, "")
        if _PAUSED in value and value != own:
            return f"{DEPLOY_LABEL}{job}={value}"
    return ""


def decide_mig_label(state: MigState | None, node: ClusterNode) -> dict[str, str | None]:
    """What becomes of the label that tells of MIG layouts, `None` to take it off; empty where it stays as it is.

    Without a wish it keeps how the last one ended, as those who wait for it expect; of one that was taken back before
    its end nothing is under way any more.
    """
    before = node.labels.get(MIG_STATE_LABEL, "")
    if state is None or state.standing == before:
        return {}
    if state.standing:
        return {MIG_STATE_LABEL: state.standing}
    is_over = not state.changes and not node.labels.get(MIG_CONFIG_LABEL, "")
    return {MIG_STATE_LABEL: None} if is_over and before in MIG_UNDER_WAY else {}


def parse_taint(text: str) -> Taint:
    """`key[=value]:Effect`, which the configuration has checked."""
    name, _, effect = text.rpartition(":")
    key, _, value = name.partition("=")
    return Taint(key=key, effect=effect, value=value)


def decide_taint(*, present: bool, ready: bool, was_ready: bool, put_again: bool) -> bool | None:
    """Whether the start-up taint is to be put on or taken off; `None` when it stays as it is."""
    if present and ready:
        return False
    if not present and not ready and was_ready and put_again:
        return True
    return None
