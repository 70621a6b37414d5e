"""Who of several replicas leads: decided by what each sees with its own clock.

Owns the rule: a lease is free when nobody has written it for as long as it is held, counted from when this replica saw
it written. Times in it are never compared with any clock, so that clocks may differ as they like.
"""

from nodeagent.model.scheduling import SeenLease
from nodeagent.model.values import Value


class Watched(Value, frozen=True):
    """A lease, and since when it has been as it is."""

    lease: SeenLease | None = None
    since_seconds: float = 0.0


class Turn(Value, frozen=True):
    """What is to be done now."""

    write: bool
    """Whether to take the lease, or to keep it."""
    leads: bool
    """Whether this replica leads until then."""


def watch_lease(before: Watched, lease: SeenLease | None, now: float) -> Watched:
    """What was just read, with the time since which it is so."""
    if before.lease is not None and lease is not None and before.lease.version == lease.version:
        return before
    return Watched(lease=lease, since_seconds=now)


def decide_turn(watched: Watched, me: str, now: float) -> Turn:
    """Take it where it is free, keep it where it is ours, and wait otherwise."""
    lease = watched.lease
    if lease is None or not lease.holder:
        return Turn(write=True, leads=False)
    is_over = now - watched.since_seconds >= lease.seconds
    if lease.holder == me:
        # One that could not be written for so long may have been taken by somebody else already.
        return Turn(write=True, leads=not is_over)
    return Turn(write=is_over, leads=False)
