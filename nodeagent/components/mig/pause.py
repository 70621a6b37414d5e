"""By which labels other DaemonSets are paused while GPUs change, and what each of them gets back; pure.

Owns the labels, which the MIG managers of this field share, and the rule that nothing is left paused.
Refuses to create a label, to pause what somebody has switched off, and to take back what somebody has changed since.
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
"""What may have the driver open, and the label `app` of its pods, where they are known by one."""
_ANY_PAUSE: Final = "paused-for-"
_OFF: Final = "false"


def plan_pause(labels: Mapping[str, str]) -> dict[str, str]:
    """The labels that are to be paused, with what they say now."""
    found = {f"{DEPLOY_LABEL}{job}": labels.get(f"{DEPLOY_LABEL}{job}", "") for job in JOBS}
    return {key: value for key, value in found.items() if value and value != _OFF and _ANY_PAUSE not in value}


def list_applications(paused: Mapping[str, str]) -> tuple[str, ...]:
    """Whose pods must be gone once these labels are paused."""
    return tuple(app for job, app in JOBS.items() if app and f"{DEPLOY_LABEL}{job}" in paused)


def list_owed(paused: Mapping[str, str], labels: Mapping[str, str]) -> dict[str, str]:
    """What is still to be given back: a label that says otherwise by now was given back, or is somebody else's.

    A pause for another reason on top of ours is waited for: whoever has put it there takes it off again.
    """
    return {key: value for key, value in paused.items() if labels.get(key, "").startswith(PAUSED_FOR_MIG)}


def list_returns(owed: Mapping[str, str], labels: Mapping[str, str]) -> dict[str, str]:
    """What of it can be given back now."""
    return {key: value for key, value in owed.items() if labels.get(key) == PAUSED_FOR_MIG}
