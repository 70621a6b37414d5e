"""The labels of the node that pause other DaemonSets with the driver open.

Owns the rules of every pause: no label is created, a DaemonSet switched off by people stays off, and a newer value is
never overwritten.
"""

from collections.abc import Mapping
from typing import Final

from nodeagent.model.cluster import DEPLOY_LABEL, PAUSED_FOR_MIG, PAUSED_FOR_UPGRADE
from nodeagent.model.nvidia import CARD_CLIENTS, DRIVER_CLIENTS
from nodeagent.model.values import Value

_ANY_PAUSE: Final = "paused-for-"
_OFF: Final = "false"


class ClientPause(Value, frozen=True):
    """A reason to pause others."""

    value: str
    """The value of a label that pauses."""
    jobs: Mapping[str, str]
    """The DaemonSets that may have the driver open, with the label `app` of their pods, if any."""

    def plan(self, labels: Mapping[str, str]) -> dict[str, str]:
        """The labels to pause, with their present values."""
        found = {f"{DEPLOY_LABEL}{job}": labels.get(f"{DEPLOY_LABEL}{job}", "") for job in self.jobs}
        return {key: value for key, value in found.items() if value and value != _OFF and _ANY_PAUSE not in value}

    def list_applications(self, paused: Mapping[str, str]) -> tuple[str, ...]:
        """The `app` labels of pods to be gone once these labels are paused."""
        return tuple(app for job, app in self.jobs.items() if app and f"{DEPLOY_LABEL}{job}" in paused)

    def list_paused(self, paused: Mapping[str, str], labels: Mapping[str, str]) -> dict[str, str]:
        """The labels still to restore: a label with another value was restored already, or was set by another writer.

        A pause for another reason on top of ours is waited for: its writer takes it off again.
        """
        return {key: value for key, value in paused.items() if labels.get(key, "").startswith(self.value)}

    def list_returns(self, owed: Mapping[str, str], labels: Mapping[str, str]) -> dict[str, str]:
        """The labels to restore now, with their values."""
        return {key: value for key, value in owed.items() if labels.get(key) == self.value}


MIG_PAUSE: Final = ClientPause(value=PAUSED_FOR_MIG, jobs=CARD_CLIENTS)
UPGRADE_PAUSE: Final = ClientPause(value=PAUSED_FOR_UPGRADE, jobs=DRIVER_CLIENTS)
