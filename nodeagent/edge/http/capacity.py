"""How many connections the descriptors of this process allow; pure, but for the question what the limit is.

Owns the number that is kept back. What a client may open must never be what the kubelet's socket, the journal or a new
GPU worker is short of, so the settings are an upper bound and the limit of descriptors has the last word.
"""

import resource
from typing import Final, NamedTuple

ADMIN_CONNECTIONS: Final = 32
"""On the admin socket, where root and the agent's own user ask; they count into what is kept back."""
KEPT_BACK: Final = 128
"""For everything that is not a connection to the HTTP port: an agent of eight GPUs uses about 20, and a new GPU worker,
a read of the processes or a rewritten journal a handful more for a moment."""
FEWEST: Final = 8
"""Even under an absurd limit so many are taken, so that somebody can see why."""


class Capacity(NamedTuple):
    """Connections to the HTTP port."""

    total: int
    each: int
    """Of one address."""
    shortage: str = ""
    """What is said where the limit of descriptors makes it less than was asked for."""


def decide_capacity(descriptors: int, total: int, each: int) -> Capacity:
    """What the settings ask for, as far as the limit of descriptors goes."""
    room = max(descriptors - KEPT_BACK, FEWEST)
    if total <= room:
        return Capacity(total, min(each, total))
    shortage = (
        f"the process may open {descriptors} files: {room} connections to the HTTP port are taken, not the {total} of "
        f"http.max_connections; {total + KEPT_BACK} files would do"
    )
    # One address must not have all of it: what another asks, a probe, must not wait for an eviction.
    return Capacity(room, min(each, max(room // 2, 1)), shortage)


def read_descriptor_limit() -> int:
    """How many files this process may have open; a limit that there is none of is a large number."""
    soft, _hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    return soft if soft != resource.RLIM_INFINITY else 2**31
