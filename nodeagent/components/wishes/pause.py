"""When GPU handles are released and taken back at the cluster's request; pure."""

from enum import Enum, auto

from nodeagent.model.values import Value


class Step(Enum):
    """The treatment of the GPU handles."""

    RELEASE = auto()
    RESUME = auto()


class Pause(Value, frozen=True):
    """The pause in force."""

    label: str = ""
    """Empty while there is none."""
    released_until: float = 0.0
    """When the release ends by itself: a node must not be lost because its agent is never resumed."""


def decide_step(wanted: str, pause: Pause, now: float, lasts_seconds: float) -> Step | None:
    """Release while the label asks for a pause, anew at half time; take back only releases made here."""
    if wanted and (wanted != pause.label or now > pause.released_until - lasts_seconds / 2):
        return Step.RELEASE
    return Step.RESUME if pause.label and not wanted else None
