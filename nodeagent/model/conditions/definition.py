"""The definition of a condition, before any instance."""

from typing import Literal

from nodeagent.model.values import Value

Severity = Literal["info", "warning", "error"]


class ConditionDefinition(Value, frozen=True):
    """A condition's name, severity and remedy, before any instance."""

    code: str
    severity: Severity
    title: str
    remedy: str
    show_after_seconds: float = 0.0
    """Hidden for this long, so that a passing fault wakes no person."""
    depends_on: tuple[str, ...] = ()
    """Hidden while a condition listed here is true of the same subject, or of all subjects, as its consequence."""
