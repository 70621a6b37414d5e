"""How many requests the agent may make: so many at once, so many in the long run, and none before it was told to.

Owns a bucket of tokens and the time before which the server wants to hear nothing. Refuses to sleep.
"""


class RateLimit:
    """Counts requests against a clock that is handed in."""

    def __init__(self) -> None:
        self._tokens: float | None = None
        self._counted_at = 0.0
        self._not_before = 0.0

    def reserve(self, now: float, *, per_second: float, burst: int) -> float:
        """Take one request's turn, and say how many seconds to wait before making it."""
        tokens = float(burst) if self._tokens is None else self._tokens + (now - self._counted_at) * per_second
        self._tokens, self._counted_at = min(tokens, float(burst)) - 1, now
        return max(0.0, -self._tokens / per_second, self._not_before - now)

    def hold_back(self, until: float) -> None:
        """Make no request before this time, whoever asks."""
        self._not_before = max(self._not_before, until)
