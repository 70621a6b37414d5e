"""What a condition is before it is true of anything."""

from typing import Literal

from nodeagent.model.values import Value

Severity = Literal["info", "warning", "error"]


class ConditionDefinition(Value, frozen=True):
    """A condition before it is true of anything: its name, weight, and what to do about it."""

    code: str
    severity: Severity
    title: str
    remedy: str
    show_after_seconds: float = 0.0
    """Hidden for this long, so that what mends itself in passing wakes nobody."""
    depends_on: tuple[str, ...] = ()
    """Hidden while one of these is true of the same thing, or of everything, because it follows from it."""
