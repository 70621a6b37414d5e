"""Time as a value handed in, so that tests decide what time it is.

Owns the two clocks the agent reads: one that only rises, for durations, and one that people read.
Refuses to sleep: waiting is anyio's, on the event loop's own clock.
"""

import time
from typing import Protocol


class Clock(Protocol):
    """What time it is, for durations and for people."""

    def monotonic(self) -> float:
        """Seconds on a clock that never goes back; only differences mean anything."""
        ...

    def wall(self) -> float:
        """Seconds since 1970 as people and other programs read it; may jump."""
        ...


class SystemClock:
    """The machine's clocks; `monotonic` is the same clock as the event loop's."""

    def monotonic(self) -> float:
        """Seconds since boot, suspended time left out."""
        return time.monotonic()

    def wall(self) -> float:
        """Seconds since 1970."""
        return time.time()
