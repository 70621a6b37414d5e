"""When GPU handles are released and taken back because the cluster asks for it; pure."""

from enum import Enum, auto

from nodeagent.model.values import Value


class Step(Enum):
    """What is to be done about the handles."""

    RELEASE = auto()
    RESUME = auto()


class Pause(Value, frozen=True):
    """The pause that is honoured now."""

    label: str = ""
    """Empty while there is none."""
    released_until: float = 0.0
    """When the release ends by itself, so that a node is not lost to an agent that nobody resumes."""


def decide_step(wanted: str, pause: Pause, now: float, lasts_seconds: float) -> Step | None:
    """Release while the label says so, anew at half time; take back only what was released here."""
    if wanted and (wanted != pause.label or now > pause.released_until - lasts_seconds / 2):
        return Step.RELEASE
    return Step.RESUME if pause.label and not wanted else None
