"""Which of several replicas leads: decided by each replica's own clock.

Owns the rule: a lease is free when unwritten for its whole duration, counted from when this replica saw the last write.
Times in the lease are never compared with any clock, so that clocks may differ by any amount.
"""

from nodeagent.model.scheduling import SeenLease
from nodeagent.model.values import Value


class Watched(Value, frozen=True):
    """A lease, and the time of its last change as seen here."""

    lease: SeenLease | None = None
    since_seconds: float = 0.0


class Turn(Value, frozen=True):
    """The next action on the lease."""

    write: bool
    """Whether to take the lease, or to keep it."""
    leads: bool
    """Whether this replica leads until the write."""


def watch_lease(before: Watched, lease: SeenLease | None, now: float) -> Watched:
    """The lease just read, with the time of its last change."""
    if before.lease is not None and lease is not None and before.lease.version == lease.version:
        return before
    return Watched(lease=lease, since_seconds=now)


def decide_turn(watched: Watched, me: str, now: float) -> Turn:
    """Take a free lease, keep an own lease, and wait otherwise."""
    lease = watched.lease
    if lease is None or not lease.holder:
        return Turn(write=True, leads=False)
    is_over = now - watched.since_seconds >= lease.seconds
    if lease.holder == me:
        # A lease unwritten for so long may have been taken by another replica already.
        return Turn(write=True, leads=not is_over)
    return Turn(write=is_over, leads=False)
