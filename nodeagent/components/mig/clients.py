"""Pauses other DaemonSets that have the driver open while GPUs change, and gives them back whatever happens.

Owns what is owed to whom: it is remembered before anything is paused, and until each label was seen to say otherwise.
"""

from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import Final

from nodeagent.components.mig.pause import list_applications, list_owed, list_returns, plan_pause
from nodeagent.model.cluster import PAUSED_FOR_MIG
from nodeagent.model.errors import ControlRefused, NodeagentError
from nodeagent.model.ports import ClientPausing

PAUSED: Final = "mig-clients-paused"
"""The condition that tells of those who could not be given back."""
GIVE_BACK_SECONDS: Final = 5.0
"""How long others may take to be given back in one attempt, and between two of them."""
GONE_SECONDS: Final = 300.0
"""How long pods may take to go once their label says that they are to."""
LOOK_SECONDS: Final = 2.0
_NAMED: Final = 3


class Clients:
    """What is paused, and for whom it is kept."""

    def __init__(
        self,
        port: ClientPausing | None,
        is_wanted: Callable[[], bool],
        remember: Callable[[Mapping[str, str]], Awaitable[str]],
        wait: Callable[[float], Awaitable[None]],
        now: Callable[[], float],
    ) -> None:
        """`remember` says why it could not; `wait` lets so much time pass."""
        self._port, self._is_wanted, self._remember = port, is_wanted, remember
        self._wait, self._now = wait, now
        self.owed: Mapping[str, str] = {}
        """What each paused label said before."""

    async def pause(self, tell: Callable[[str], None]) -> None:
        """Have those who have the driver open gone, where that is wanted; `tell` hears for whom it waits.

        Raises:
            NodeagentError: they are not gone.
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
            await self._wait(LOOK_SECONDS)

    def _refuse_late(self, left: str, until: float) -> None:
        if self._now() >= until:
            raise ControlRefused(f"after {GONE_SECONDS:g} s others are still paused and not gone: {left}")

    async def give_back(self) -> str:
        """Give back what is owed, as far as it can be now; says what keeps it."""
        if not self.owed:
            return ""
        if self._port is None:
            return "there is no API server any more at which it could be given back"
        try:
            labels = await self._port.read_labels()
            owed = list_owed(self.owed, labels)
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
    """Who is not gone yet, or why that cannot be said now; empty where they are."""
    try:
        return ", ".join((await port.list_pods(applications))[:_NAMED])
    except NodeagentError as error:
        return str(error)
