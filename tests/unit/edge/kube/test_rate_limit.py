"""How many requests, and when."""

import pytest

from nodeagent.edge.kube.rate_limit import RateLimit


def test_a_burst_then_an_even_pace() -> None:
    limit = RateLimit()
    waits = [limit.reserve(100, per_second=5, burst=3) for _ in range(5)]
    assert waits == pytest.approx([0, 0, 0, 0.2, 0.4])


def test_quiet_time_is_saved_up_to_a_burst() -> None:
    """An hour of silence earns one burst, not an hour's requests."""
    limit = RateLimit()
    limit.reserve(0, per_second=5, burst=2)
    waits = [limit.reserve(3600, per_second=5, burst=2) for _ in range(3)]
    assert waits == pytest.approx([0, 0, 0.2])


def test_nobody_asks_before_the_time_that_was_named() -> None:
    """The latest of several times counts, for every request."""
    limit = RateLimit()
    limit.hold_back(110)
    limit.hold_back(105)
    assert limit.reserve(100, per_second=5, burst=9) == pytest.approx(10)
    assert limit.reserve(111, per_second=5, burst=9) == 0


def test_who_will_not_wait_takes_no_turn() -> None:
    """He is told for how long it would have been, and nobody waits for longer because he asked."""
    limit = RateLimit()
    limit.hold_back(110)
    waits = [limit.reserve(100, per_second=1, burst=2, patience=5) for _ in range(1000)]
    assert set(waits) == {10}
    assert [limit.reserve(111, per_second=1, burst=2, patience=5) for _ in range(3)] == pytest.approx([0, 0, 1])
