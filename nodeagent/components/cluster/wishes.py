"""What the cluster asks of this node by labels, and what is done to its start-up taint.

Owns the keys of the pause protocol, and the rule for the taint.
"""

from collections.abc import Mapping

from nodeagent.config.named import LABEL
from nodeagent.model.cluster import MIG_CONFIG_LABEL, MIG_STATE_LABEL, ClusterNode, ClusterWishes, Taint
from nodeagent.model.mig import MigState

_DEPLOY = "nvidia.com/gpu.deploy."
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


def read_wishes(labels: Mapping[str, str]) -> ClusterWishes:
    """All that these labels ask for."""
    return ClusterWishes(
        pause=find_pause(labels),
        configuration=labels.get(LABEL, ""),
        mig_config=labels.get(MIG_CONFIG_LABEL, ""),
        mig_state=labels.get(MIG_STATE_LABEL, ""),
    )


def find_pause(labels: Mapping[str, str]) -> str:
    """The label that pauses us, as `key=value`; nothing when none does."""
    for job in _OUR_JOBS:
        value = labels.get(_DEPLOY + job, "")
        if _PAUSED in value:
            return f"{_DEPLOY}{job}={value}"
    return ""


def decide_mig_label(state: MigState | None, node: ClusterNode) -> str:
    """What the label that tells of MIG layouts is to say; empty where it stays as it is.

    Without a wish it keeps what it said last, as those who wait for it expect.
    """
    standing = state.standing if state is not None else ""
    return standing if standing and node.labels.get(MIG_STATE_LABEL, "") != standing else ""


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
