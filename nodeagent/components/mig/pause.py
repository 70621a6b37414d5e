"""By which labels other DaemonSets are paused while GPUs change, and the value to restore for each; pure.

Owns the labels, shared with other MIG managers, and the rule that no label is left paused.
Refuses to create a label, to pause a DaemonSet switched off by people, and to overwrite a value set since.
"""

from collections.abc import Mapping
from typing import Final

from nodeagent.model.cluster import DEPLOY_LABEL, PAUSED_FOR_MIG

JOBS: Final = {
    "device-plugin": "nvidia-device-plugin-daemonset",
    "gpu-feature-discovery": "gpu-feature-discovery",
    "dcgm-exporter": "nvidia-dcgm-exporter",
    "dcgm": "nvidia-dcgm",
    "nvsm": "",
    "client": "",
}
"""DaemonSets that may have the driver open, with the label `app` of their pods, if any."""
_ANY_PAUSE: Final = "paused-for-"
_OFF: Final = "false"


def plan_pause(labels: Mapping[str, str]) -> dict[str, str]:
    """The labels to pause, with their present values."""
    found = {f"{DEPLOY_LABEL}{job}": labels.get(f"{DEPLOY_LABEL}{job}", "") for job in JOBS}
    return {key: value for key, value in found.items() if value and value != _OFF and _ANY_PAUSE not in value}


def list_applications(paused: Mapping[str, str]) -> tuple[str, ...]:
    """The `app` labels of pods to be gone once these labels are paused."""
    return tuple(app for job, app in JOBS.items() if app and f"{DEPLOY_LABEL}{job}" in paused)


def list_owed(paused: Mapping[str, str], labels: Mapping[str, str]) -> dict[str, str]:
    """The labels still to restore: a label with another value was restored already, or was set by another writer.

    A pause for another reason on top of ours is waited for: its writer takes it off again.
    """
    return {key: value for key, value in paused.items() if labels.get(key, "").startswith(PAUSED_FOR_MIG)}


def list_returns(owed: Mapping[str, str], labels: Mapping[str, str]) -> dict[str, str]:
    """The labels to restore now, with their values."""
    return {key: value for key, value in owed.items() if labels.get(key) == PAUSED_FOR_MIG}
