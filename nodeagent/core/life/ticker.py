"""Ticks at a fixed cadence, all on one beat: no drift, and no burst after a pause.

Owns the schedule. A tick is due at each whole multiple of the period on the loop's clock, independent of the duration
of the work and of the start: a dozen components polling each second wake an idle processor once, not a dozen times, and
the waking was a fifth of an idle agent's cost. Ticks due while the consumer was busy are skipped and counted.
Refuses to run the work itself.

    async for tick in Ticker(1.0):
        await sample()
"""

from typing import Self

import anyio
from msgspec import Struct


def until_beat(period_seconds: float) -> float:
    """Seconds from now to the next multiple of the period on the loop's clock: at most a tenth more than the period.

    For polling with sleeps or waits in between; no period is no wait.
    """
    if period_seconds <= 0:
        return 0.0
    rest = period_seconds - anyio.current_time() % period_seconds
    return rest if rest > period_seconds / 10 else rest + period_seconds


class Tick(Struct, frozen=True):
    """One taken tick."""

    number: int
    """The number of the tick among all due ticks, taken or not; the first is 0."""

    missed: int
    """Ticks skipped just before."""


class Ticker:
    """A first tick at once, then ticks at the multiples of the period."""

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
        """The next tick, at its due time."""
        now = anyio.current_time()
        if self._start is None:
            self._start = now - now % self._period_seconds
        # the newest due tick, or else the next tick
        due = max(self._number + 1, int((now - self._start) / self._period_seconds))
        missed = due - self._number - 1
        self.missed += missed
        self._number = due
        await anyio.sleep_until(self._start + due * self._period_seconds)
        return Tick(due, missed)
