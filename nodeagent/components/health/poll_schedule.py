"""When a poll of the GPUs is due, and when a missing reading is a missed poll; pure."""

from enum import Enum, auto

from nodeagent.components.health.decide import Moment
from nodeagent.model.values import Value


class PollIntervals(Value, frozen=True):
    """How often GPUs are sampled, and how often a sample is judged."""

    look_seconds: float
    sample_seconds: float

    @property
    def patience_seconds(self) -> float:
        """How old the newest reading may be."""
        return max(self.look_seconds, 2 * self.sample_seconds)


class PollKind(Enum):
    """The use of a sample."""

    NONE = auto()
    DUE = auto()
    EXTRA = auto()
    """Asked for by a report; no poll of the ordinary rhythm."""


class PollSchedule:
    """When the last poll was, and whether a report asks for another."""

    def __init__(self, at: float) -> None:
        """`at` is when the first sample began to be waited for."""
        self._sampled_at, self._looked_at = at, float("-inf")
        self.is_asked = False
        self.is_renewed = False
        """Whether the rhythm begins anew, so that the next fresh sample is a poll of it: a GPU was reset."""

    @property
    def has_begun(self) -> bool:
        """Whether a poll of the ordinary rhythm has happened."""
        return self._looked_at > float("-inf")

    def take(self, sampled_wall: float, now: Moment, intervals: PollIntervals) -> PollKind:
        """The use of a sample of this age; an extra poll takes the next fresh sample."""
        if now.wall - sampled_wall > intervals.patience_seconds:
            return PollKind.NONE  # retained from before this part was started: it proves nothing about now
        self._sampled_at = now.at
        # Half a sample early rather than one late: samples have their own rhythm.
        is_due = self.is_renewed or now.at >= self._looked_at + intervals.look_seconds - intervals.sample_seconds / 2
        if not is_due and not self.is_asked:
            return PollKind.NONE
        self.is_asked = self.is_renewed = False
        if is_due:
            self._looked_at = now.at
        return PollKind.DUE if is_due else PollKind.EXTRA

    def is_missed(self, at: float, intervals: PollIntervals) -> bool:
        """Whether readings have been wanted for longer than is patient."""
        return at - self._sampled_at >= intervals.patience_seconds


class MonitoringGaps:
    """The sources that cannot be monitored, each with the reason."""

    def __init__(self) -> None:
        self._reasons: dict[str, str] = {}

    def note(self, what: str, reason: str) -> bool:
        """Take a reason, or the end of a gap when empty; whether the gaps changed."""
        if self._reasons.get(what, "") == reason:
            return False
        self._reasons[what] = reason
        if not reason:
            del self._reasons[what]
        return True

    def __str__(self) -> str:
        return "; ".join(self._reasons.values())
