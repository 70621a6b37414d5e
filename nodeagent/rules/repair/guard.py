"""The guard: how often GPUs may be reset and the node be rebooted, whatever the number of sessions.

Counts intents too: an attempt that began counts, whether or not its end is known. A reload of the driver is a reset of
every GPU. GPUs on one board share the board's count.
"""

from collections.abc import Collection, Iterable, Iterator
from typing import Final

from nodeagent.model.repairs import Attempt, FaultSession, Rung

WINDOW_SECONDS: Final = 7 * 86400.0
RESETS_MAX: Final = 2
"""Of each GPU within the window."""
REBOOTS_MAX: Final = 2
"""Of the node within the window."""


def refuse_by_guard(rung: Rung, boards: Collection[str], sessions: Iterable[FaultSession], now_seconds: float) -> str:
    """Why the guard keeps a rung from being taken; empty where it may be taken."""
    recent = list(_list_recent(sessions, now_seconds))
    days = f"{WINDOW_SECONDS / 86400:g} days"
    if rung is Rung.REBOOT and sum(one.rung is Rung.REBOOT for one in recent) >= REBOOTS_MAX:
        return f"the node was rebooted {REBOOTS_MAX} times for repairs within {days}"
    resets = [one for one in recent if one.rung.is_reset]
    if rung.is_reset and any(sum(board in one.boards for one in resets) >= RESETS_MAX for board in boards):
        return f"a GPU was reset {RESETS_MAX} times within {days}"
    return ""


def _list_recent(sessions: Iterable[FaultSession], now_seconds: float) -> Iterator[Attempt]:
    for session in sessions:
        for attempt in session.attempts:
            # A clock that was put back makes attempts of the future; they count.
            if attempt.is_own and attempt.counts and now_seconds - attempt.began_seconds < WINDOW_SECONDS:
                yield attempt
