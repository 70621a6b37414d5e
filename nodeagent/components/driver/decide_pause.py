"""How soon to probe the driver again when no event calls for a probe."""

from nodeagent.model.driver import DriverPhase

FIRST_PAUSE_SECONDS = 1.0

_AT_REST = {DriverPhase.READY, DriverPhase.NO_HARDWARE, DriverPhase.UNSUPPORTED}
"""Nothing is expected to change by itself; what comes by hand is noticed as a change."""


def decide_pause(phase: DriverPhase, looks_alike: int, revalidate_seconds: float) -> float:
    """Seconds until the next look: soon after a failure began, then ever less often, up to the usual pause.

    Args:
        phase: what the last look found.
        looks_alike: how many looks in a row found just that.
        revalidate_seconds: the usual pause.
    """
    if phase in _AT_REST:
        return revalidate_seconds
    # The exponent is bounded, so that a failure of many days does not overflow.
    return min(revalidate_seconds, FIRST_PAUSE_SECONDS * 2.0 ** min(max(looks_alike - 1, 0), 16))
