"""When handles are released and taken back for the cluster."""

import pytest

from nodeagent.components.wishes.decide import Pause, Step, decide_step

HELD = Pause(label="a=paused-for-x", released_until=1000.0)


@pytest.mark.parametrize(
    ("wanted", "pause", "now", "step"),
    [
        ("", Pause(), 0.0, None),
        ("a=paused-for-x", Pause(), 0.0, Step.RELEASE),
        ("a=paused-for-x", HELD, 400.0, None),
        ("a=paused-for-x", HELD, 500.1, Step.RELEASE),
        ("b=paused-for-y", HELD, 400.0, Step.RELEASE),
        ("", HELD, 400.0, Step.RESUME),
        ("", HELD, 2000.0, Step.RESUME),
    ],
)
def test_a_release_is_renewed_at_half_time_and_ended_with_its_label(
    wanted: str, pause: Pause, now: float, step: Step | None
) -> None:
    """What nobody asked for here is not taken back here."""
    assert decide_step(wanted, pause, now, 1000.0) is step
