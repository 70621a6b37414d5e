"""The clock of the machine, and counting how long things took."""

import time

import pytest

from nodeagent.core.clock import SystemClock
from nodeagent.core.durations import BOUNDS_SECONDS, Durations


@pytest.mark.parametrize(("seconds", "place"), [(0.0, 0), (0.5, 0), (0.500001, 1), (1.0, 1), (2.0, 2), (1e9, 2)])
def test_each_is_counted_once_under_the_first_bound_that_holds_it(seconds: float, place: int) -> None:
    """A bound belongs to what is below it, and what is beyond all has a place of its own."""
    durations = Durations((0.5, 1.0))
    durations.observe(seconds)
    assert durations.counts == tuple(int(place == number) for number in range(3))
    assert durations.sum_seconds == seconds


def test_sums_and_counts_grow() -> None:
    """Nothing is lost from one to the next."""
    durations = Durations()
    for _ in range(10):
        durations.observe(0.0002)
    assert sum(durations.counts) == 10
    assert durations.sum_seconds == pytest.approx(0.002)


def test_bounds_rise() -> None:
    """Otherwise the search for a place would go astray."""
    assert list(BOUNDS_SECONDS) == sorted(set(BOUNDS_SECONDS))


def test_system_clock_reads_the_machine_s_clocks() -> None:
    """Both clocks lie between two readings of the machine's own."""
    clock = SystemClock()
    assert time.monotonic() <= clock.monotonic() <= time.monotonic()
    assert time.time() <= clock.wall() <= time.time()
