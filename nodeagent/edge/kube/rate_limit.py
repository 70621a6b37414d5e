"""The rate limit of the agent's requests: a burst, a long-term rate, and the server's own pause.

Owns a bucket of tokens and the end of the pause asked for by the server. Refuses to sleep.
"""

import math
from typing import Final

URGENT: Final = (100.0, 200)
"""Urgent requests by the second and at a time, for waiting pods: as many as a node can start."""
RETRY_AFTER_MAX_SECONDS: Final = 300.0


class RateLimit:
    """Counts requests against the caller's clock."""

    def __init__(self) -> None:
        self._tokens: float | None = None
        self._counted_at = 0.0
        self._not_before = 0.0

    def reserve(self, now: float, *, per_second: float, burst: int, patience: float = math.inf) -> float:
        """Take the turn of a request, and return the seconds to wait before.

        A request with a wait longer than `patience` is not made, and takes no turn from later requests.
        """
        tokens = float(burst) if self._tokens is None else self._tokens + (now - self._counted_at) * per_second
        tokens = min(tokens, float(burst))
        wait = max(0.0, (1 - tokens) / per_second, self._not_before - now)
        self._tokens, self._counted_at = tokens if wait > patience else tokens - 1, now
        return wait

    def hold_back(self, until: float) -> None:
        """Allow no request before the time."""
        self._not_before = max(self._not_before, until)


def parse_retry_after(text: str) -> float | None:
    """The seconds of the header `Retry-After`, within bounds; `None` for a date or nothing."""
    return min(float(text), RETRY_AFTER_MAX_SECONDS) if text.isascii() and text.isdigit() else None
