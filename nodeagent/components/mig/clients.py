"""Pauses other DaemonSets that have the driver open while GPUs change, and unpauses them whatever happens.

Owns the labels, shared with other MIG managers, and the labels to restore: stored before a pause, and until each label
was seen with another value. Refuses to create a label, to pause a DaemonSet switched off by people, and to overwrite a
value set since.
"""

from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import Final

from nodeagent.model.cluster import DEPLOY_LABEL, PAUSED_FOR_MIG
from nodeagent.model.errors import ControlRefused, NodeagentError
from nodeagent.model.ports import ClientPausing

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


def list_paused(paused: Mapping[str, str], labels: Mapping[str, str]) -> dict[str, str]:
    """The labels still to restore: a label with another value was restored already, or was set by another writer.

    A pause for another reason on top of ours is waited for: its writer takes it off again.
    """
    return {key: value for key, value in paused.items() if labels.get(key, "").startswith(PAUSED_FOR_MIG)}


def list_returns(owed: Mapping[str, str], labels: Mapping[str, str]) -> dict[str, str]:
    """The labels to restore now, with their values."""
    return {key: value for key, value in owed.items() if labels.get(key) == PAUSED_FOR_MIG}


PAUSED: Final = "mig-clients-paused"
"""The condition for DaemonSets left paused."""
GIVE_BACK_SECONDS: Final = 5.0
"""How long unpausing may take in one attempt, and the time between two attempts."""
GONE_SECONDS: Final = 300.0
"""How long pods may take to go after the pause of their label."""
POLL_INTERVAL_SECONDS: Final = 2.0
_NAMED: Final = 3


class Clients:
    """The paused DaemonSets, and the former values of their labels."""

    def __init__(
        self,
        port: ClientPausing | None,
        is_wanted: Callable[[], bool],
        remember: Callable[[Mapping[str, str]], Awaitable[str]],
        wait: Callable[[float], Awaitable[None]],
        now: Callable[[], float],
    ) -> None:
        """`remember` returns why storing failed; `wait` lets so many seconds pass."""
        self._port, self._is_wanted, self._remember = port, is_wanted, remember
        self._wait, self._now = wait, now
        self.owed: Mapping[str, str] = {}
        """The former value of each paused label."""

    async def pause(self, tell: Callable[[str], None]) -> None:
        """Pause the driver's clients, where wanted, and wait for their end; `tell` is called with pods still awaited.

        Raises:
            NodeagentError: Some pods are not gone.
        """
        if self._port is None or not self._is_wanted():
            return
        found = plan_pause(await self._port.read_labels())
        owed = {**self.owed, **found}
        if found:
            if trouble := await self._remember(owed):
                raise ControlRefused(f"other DaemonSets are not paused, for it could not be remembered: {trouble}")
            self.owed = owed
            for key in found:
                await self._port.write_label(key, PAUSED_FOR_MIG)
        applications, until = list_applications(owed), self._now() + GONE_SECONDS
        while applications and (left := await _find_left(self._port, applications)):
            self._refuse_late(left, until)
            tell(f"waits for others that are paused to be gone: {left}")
            await self._wait(POLL_INTERVAL_SECONDS)

    def _refuse_late(self, left: str, until: float) -> None:
        if self._now() >= until:
            raise ControlRefused(f"after {GONE_SECONDS:g} s others are still paused and not gone: {left}")

    async def give_back(self) -> str:
        """Restore the paused labels, as far as possible now; returns the obstacle, if any."""
        if not self.owed:
            return ""
        if self._port is None:
            return "there is no API server any more at which it could be given back"
        try:
            labels = await self._port.read_labels()
            owed = list_paused(self.owed, labels)
            for key, value in list_returns(owed, labels).items():
                await self._port.write_label(key, value)
                del owed[key]
        except NodeagentError as error:
            return str(error)
        if trouble := await self._remember(owed):
            return trouble
        self.owed = owed
        return f"{', '.join(sorted(owed))} is paused for another reason too" if owed else ""


async def _find_left(port: ClientPausing, applications: Sequence[str]) -> str:
    """The pods not gone yet, or why pods cannot be listed now; empty once all are gone."""
    try:
        return ", ".join((await port.list_pods(applications))[:_NAMED])
    except NodeagentError as error:
        return str(error)
