"""When a look at the GPUs is due, and when the want of one is a missed look; pure."""

from enum import Enum, auto

from nodeagent.components.health.decide import Moment
from nodeagent.model.values import Value


class Pace(Value, frozen=True):
    """How often there is something to look at, and how often it is looked at."""

    look_seconds: float
    sample_seconds: float

    @property
    def patience_seconds(self) -> float:
        """How old the newest reading may be."""
        return max(self.look_seconds, 2 * self.sample_seconds)


class Look(Enum):
    """What a sample is used for."""

    NONE = auto()
    DUE = auto()
    EXTRA = auto()
    """Asked for by a report; it counts as no look of the ordinary rhythm."""


class Looks:
    """What was looked at last, and whether somebody asked for more."""

    def __init__(self, at: float) -> None:
        """`at` is when the first sample began to be waited for."""
        self._sampled_at, self._looked_at = at, float("-inf")
        self.is_asked = False

    @property
    def has_begun(self) -> bool:
        """Whether there was a look of the ordinary rhythm."""
        return self._looked_at > float("-inf")

    def take(self, sampled_wall: float, now: Moment, pace: Pace) -> Look:
        """What to do with a sample of that time; the one asked for is the next that is fresh."""
        if now.wall - sampled_wall > pace.patience_seconds:
            return Look.NONE  # retained from before this part was started: it proves nothing about now
        self._sampled_at = now.at
        # Half a sample early rather than one late: samples have their own rhythm.
        is_due = now.at >= self._looked_at + pace.look_seconds - pace.sample_seconds / 2
        if not is_due and not self.is_asked:
            return Look.NONE
        self.is_asked = False
        if is_due:
            self._looked_at = now.at
        return Look.DUE if is_due else Look.EXTRA

    def is_missed(self, at: float, pace: Pace) -> bool:
        """Whether readings have been wanted for longer than is patient."""
        return at - self._sampled_at >= pace.patience_seconds


class Deafness:
    """What cannot be heard, and why."""

    def __init__(self) -> None:
        self._reasons: dict[str, str] = {}

    def note(self, what: str, reason: str) -> bool:
        """Take a reason, or its end when it is empty; whether anything is other than before."""
        if self._reasons.get(what, "") == reason:
            return False
        self._reasons[what] = reason
        if not reason:
            del self._reasons[what]
        return True

    def __str__(self) -> str:
        return "; ".join(self._reasons.values())
