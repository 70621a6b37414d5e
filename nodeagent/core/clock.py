"""Time as a value handed in, so that tests set the clock.

Owns the agent's two clocks: a clock that only rises, for durations, and a wall clock for people.
Refuses to sleep: waiting is anyio's, on the event loop's clock.
"""

import time
from typing import Protocol


class Clock(Protocol):
    """The time, for durations and for people."""

    def monotonic(self) -> float:
        """Seconds on a clock that never goes back; only differences have a meaning."""
        ...

    def wall(self) -> float:
        """Seconds since 1970, for people and other programs; may jump."""
        ...


class SystemClock:
    """The machine's clocks; `monotonic` is the same clock as the event loop's."""

    monotonic = staticmethod(time.monotonic)
    wall = staticmethod(time.time)
