"""Pauses other DaemonSets that have the driver open while GPUs change, and unpauses them whatever happens.

Owns the labels to restore: stored before a pause, and until each label was seen with another value.
Refuses to choose labels: `rules/paused_clients` says which are paused.
"""

from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import Final

from nodeagent.model.errors import ControlRefused, NodeagentError
from nodeagent.model.ports import ClientPausing
from nodeagent.rules.paused_clients import MIG_PAUSE

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
        found = MIG_PAUSE.plan(await self._port.read_labels())
        owed = {**self.owed, **found}
        if found:
            if trouble := await self._remember(owed):
                raise ControlRefused(f"other DaemonSets are not paused, for it could not be remembered: {trouble}")
            self.owed = owed
            for key in found:
                await self._port.write_label(key, MIG_PAUSE.value)
        applications, until = MIG_PAUSE.list_applications(owed), self._now() + GONE_SECONDS
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
            owed = MIG_PAUSE.list_paused(self.owed, labels)
            for key, value in MIG_PAUSE.list_returns(owed, labels).items():
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
