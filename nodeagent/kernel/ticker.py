"""Ticks at a fixed cadence: no drift, and no burst after a pause.

Owns the schedule: tick n is due at the start plus n periods, whatever the work in between took. Ticks that fell due
while the consumer was busy are skipped and counted. Refuses to run the work itself.

    async for tick in Ticker(1.0):
        await sample()
"""

from typing import Self

import anyio
from msgspec import Struct


class Tick(Struct, frozen=True):
    """One tick that was taken."""

    number: int
    """Counts every tick that was due, taken or not; the first is 0."""

    missed: int
    """Ticks skipped just before this one."""


class Ticker:
    """The first tick comes at once, the next ones a period apart."""

    def __init__(self, period_seconds: float) -> None:
        if period_seconds <= 0:
            raise ValueError(f"a ticker needs a period above zero, not {period_seconds}")
        self._period_seconds = period_seconds
        self._start: float | None = None
        self._number = -1
        self.missed = 0
        """Ticks skipped since the start."""

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> Tick:
        """The next tick, when it is due."""
        now = anyio.current_time()
        if self._start is None:
            self._start = now
        # the newest tick that is due already, or else the next one
        due = max(self._number + 1, int((now - self._start) / self._period_seconds))
        missed = due - self._number - 1
        self.missed += missed
        self._number = due
        await anyio.sleep_until(self._start + due * self._period_seconds)
        return Tick(due, missed)
