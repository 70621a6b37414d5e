"""The wait before the next try: growing, jittered, reset after a stable period. Pure but for the counter.

Owns the count of failures in a row. Refuses to sleep and to know the failure.
"""

from random import Random

from msgspec import Struct


class BackoffSettings(Struct, frozen=True):
    """The shape of the pauses."""

    first_seconds: float = 0.5
    """Upper end of the first pause."""

    factor: float = 2.0
    """The growth of the upper end with each failure in a row."""

    limit_seconds: float = 30.0
    """The limit of the upper end."""

    jitter_low: float = 0.5
    """The shortest pause as a fraction of the upper end; pauses are drawn evenly in between, so that nodes that
    failed together do not come back together."""

    stable_seconds: float = 60.0
    """The run time after which the next failure counts as the first."""


def decide_delay(settings: BackoffSettings, failures: int, rng: Random) -> float:
    """Seconds to wait after the `failures`-th failure in a row (1 is the first)."""
    # past 64 doublings every limit is reached, and larger powers overflow a float
    growth = settings.factor ** min(failures - 1, 64)
    upper = min(settings.first_seconds * growth, settings.limit_seconds)
    return rng.uniform(settings.jitter_low * upper, upper)


class Backoff:
    """Counts the failures in a row of one component or child."""

    def __init__(self, settings: BackoffSettings, rng: Random) -> None:
        self._settings, self._rng = settings, rng
        self._failures = 0

    def delay_after_failure(self, *, ran_seconds: float) -> float:
        """Seconds to wait after a failure that followed a run of `ran_seconds`."""
        if ran_seconds >= self._settings.stable_seconds:
            self._failures = 0
        self._failures += 1
        return decide_delay(self._settings, self._failures, self._rng)
