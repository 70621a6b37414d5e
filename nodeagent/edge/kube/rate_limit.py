"""How many requests the agent may make: so many at once, so many in the long run, and none before it was told to.

Owns a bucket of tokens and the time before which the server wants to hear nothing. Refuses to sleep.
"""

import math


class RateLimit:
    """Counts requests against a clock that is handed in."""

    def __init__(self) -> None:
        self._tokens: float | None = None
        self._counted_at = 0.0
        self._not_before = 0.0

    def reserve(self, now: float, *, per_second: float, burst: int, patience: float = math.inf) -> float:
        """Take one request's turn, and say how many seconds to wait before making it.

        One that would have to wait for longer than `patience` is not made, and takes no turn from those after it.
        """
        tokens = float(burst) if self._tokens is None else self._tokens + (now - self._counted_at) * per_second
        tokens = min(tokens, float(burst))
        wait = max(0.0, (1 - tokens) / per_second, self._not_before - now)
        self._tokens, self._counted_at = tokens if wait > patience else tokens - 1, now
        return wait

    def hold_back(self, until: float) -> None:
        """Make no request before this time, whoever asks."""
        self._not_before = max(self._not_before, until)
