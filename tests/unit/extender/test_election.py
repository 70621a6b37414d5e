"""Who leads, by what each replica sees with its own clock."""

import pytest

from nodeagent.extender.election import Turn, Watched, decide_turn, watch_lease
from nodeagent.model.scheduling import SeenLease

TAKE, KEEP, WAIT = Turn(write=True, leads=False), Turn(write=True, leads=True), Turn(write=False, leads=False)


def held(holder: str, version: str = "1") -> SeenLease:
    return SeenLease(version=version, holder=holder, seconds=15.0)


@pytest.mark.parametrize(
    ("lease", "age", "turn"),
    [
        (None, 0.0, TAKE),
        (held(""), 0.0, TAKE),
        (held("me"), 0.0, KEEP),
        (held("me"), 14.9, KEEP),
        (held("me"), 15.0, TAKE),
        (held("other"), 0.0, WAIT),
        (held("other"), 14.9, WAIT),
        (held("other"), 15.0, TAKE),
    ],
)
def test_a_lease_is_free_when_nobody_wrote_it_for_as_long_as_it_is_held(
    lease: SeenLease | None, age: float, turn: Turn
) -> None:
    """And who could not renew its own for so long leads no more."""
    assert decide_turn(Watched(lease=lease, since_seconds=100.0), "me", 100.0 + age) == turn


def test_only_a_change_begins_the_time_anew() -> None:
    """By its version: what a clock elsewhere says is not looked at."""
    first = watch_lease(Watched(), held("other"), 10.0)
    assert first == Watched(lease=held("other"), since_seconds=10.0)
    assert watch_lease(first, held("other"), 20.0) is first
    assert watch_lease(first, held("other", "2"), 20.0).since_seconds == 20.0
    assert watch_lease(first, None, 20.0) == Watched(since_seconds=20.0)
    assert watch_lease(Watched(), None, 20.0) == Watched(since_seconds=20.0)
