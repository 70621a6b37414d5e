"""How soon the driver is looked at again."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from nodeagent.components.driver.decide import decide_pause
from nodeagent.model.driver import DriverPhase


@pytest.mark.parametrize(
    ("phase", "looks", "pause"),
    [
        (DriverPhase.READY, 1, 30.0),
        (DriverPhase.NO_HARDWARE, 1, 30.0),
        (DriverPhase.UNSUPPORTED, 1, 30.0),
        (DriverPhase.NOT_LOADED, 1, 1.0),
        (DriverPhase.NOT_LOADED, 0, 1.0),
        (DriverPhase.FABRIC_NOT_READY, 2, 2.0),
        (DriverPhase.STUCK, 5, 16.0),
        (DriverPhase.FAILED, 6, 30.0),
        (DriverPhase.FAILED, 100_000, 30.0),
    ],
)
def test_pause_grows_while_a_failure_lasts(phase: DriverPhase, looks: int, pause: float) -> None:
    """A driver at rest is looked at regularly, a failing one soon and then ever less often."""
    assert decide_pause(phase, looks, 30.0) == pause


@given(st.sampled_from(DriverPhase), st.integers(0, 10**9), st.floats(1, 3600))
def test_pause_is_never_longer_than_configured_nor_none(phase: DriverPhase, looks: int, usual: float) -> None:
    """Whatever has happened, the next look comes within the configured pause, and not at once."""
    assert 1.0 <= decide_pause(phase, looks, usual) <= usual
