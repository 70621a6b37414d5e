"""The limit of crashes: at most N within a sliding window. Pure but for the remembered times.

Owns the times of the recent crashes. Refuses to decide about the end of the budget.
"""

from collections import deque

from msgspec import Struct


class BudgetSettings(Struct, frozen=True):
    """The number of crashes allowed, and the window."""

    allowed: int = 5
    """Crashes within the window after which a restart is still tried; the next crash is past the budget."""

    window_seconds: float = 600.0
    """Older crashes are forgotten."""


class CrashBudget:
    """The crash count of one component."""

    def __init__(self, settings: BudgetSettings) -> None:
        self._settings = settings
        self._crashes: deque[float] = deque()

    @property
    def crashes(self) -> int:
        """Crashes within the window, as of the last crash."""
        return len(self._crashes)

    def note_crash(self, now: float) -> bool:
        """Count a crash at monotonic time `now`; `False` when past the budget."""
        self._crashes.append(now)
        while self._crashes[0] <= now - self._settings.window_seconds:
            self._crashes.popleft()
        return len(self._crashes) <= self._settings.allowed
