"""How many connections the process's descriptors allow; pure, but for reading the limit.

Owns the number of descriptors kept back. Clients' connections must never take the descriptors of the kubelet's socket,
the journal or a new GPU worker, so the settings are an upper bound and the limit of descriptors has the last word.
"""

import resource
from typing import Final, NamedTuple

ADMIN_CONNECTIONS: Final = 32
"""On the admin socket, for root and the agent's own user; counted into `KEPT_BACK`."""
KEPT_BACK: Final = 128
"""For everything but connections to the HTTP port: an agent of eight GPUs uses about 20, and a new GPU worker,
a read of the processes or a rewritten journal a handful more for a moment.
"""
FEWEST: Final = 8
"""The number taken even under an absurd limit, so that a person can see why."""


class Capacity(NamedTuple):
    """The bounds of connections to the HTTP port."""

    total: int
    each: int
    """Of one address."""
    shortage: str = ""
    """The message where the limit of descriptors makes the total less than configured."""


def decide_capacity(descriptors: int, total: int, each: int) -> Capacity:
    """The configured capacity, reduced to the limit of descriptors."""
    room = max(descriptors - KEPT_BACK, FEWEST)
    if total <= room:
        return Capacity(total, min(each, total))
    shortage = (
        f"the process may open {descriptors} files: {room} connections to the HTTP port are taken, not the {total} of "
        f"http.max_connections; {total + KEPT_BACK} files would do"
    )
    # One address must not take the whole room: a probe from another address must not wait for an eviction.
    return Capacity(room, min(each, max(room // 2, 1)), shortage)


def read_descriptor_limit() -> int:
    """How many files the process may have open; a large number without a limit."""
    soft, _hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    return soft if soft != resource.RLIM_INFINITY else 2**31
