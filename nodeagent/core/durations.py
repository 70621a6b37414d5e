"""Durations counted between bounds, for a histogram.

Owns the counts. Counting takes less than a microsecond and may be done in any one thread at a time; a concurrent reader
may see one observation counted and not yet summed.
"""

from bisect import bisect_left
from collections.abc import Sequence
from typing import Final

BOUNDS_SECONDS: Final = (0.0001, 0.00025, 0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.1, 0.5, 2.5)
"""For steps of a pod's admission: tenths of milliseconds as a rule, seconds in case of a fault."""


class Durations:
    """Counts of durations, each under the first bound not below the duration."""

    __slots__ = ("_counts", "bounds_seconds", "sum_seconds")

    def __init__(self, bounds_seconds: Sequence[float] = BOUNDS_SECONDS) -> None:
        self.bounds_seconds = tuple(bounds_seconds)
        self.sum_seconds = 0.0
        self._counts = [0] * (len(self.bounds_seconds) + 1)

    @property
    def counts(self) -> tuple[int, ...]:
        """The number of durations under each bound, and last beyond all bounds; each duration counts once."""
        return tuple(self._counts)

    def observe(self, seconds: float) -> None:
        """Count one duration."""
        self._counts[bisect_left(self.bounds_seconds, seconds)] += 1
        self.sum_seconds += seconds
