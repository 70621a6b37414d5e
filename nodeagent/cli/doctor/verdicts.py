"""What a check concludes: a verdict, a reason and a command to paste."""

from enum import StrEnum

from nodeagent.model.values import Value


class Grade(StrEnum):
    """How a check ended."""

    OK = "ok"
    WARN = "warn"
    FAIL = "fail"


class Check(Value, frozen=True):
    """One line of the doctor."""

    name: str
    grade: Grade
    found: str
    remedy: str = ""
    """A command to paste, or what to do where no command does it; empty when nothing is to be done."""


def ok(name: str, found: str) -> Check:
    """All is well."""
    return Check(name=name, grade=Grade.OK, found=found)


def warn(name: str, found: str, remedy: str) -> Check:
    """It works, but somebody should know."""
    return Check(name=name, grade=Grade.WARN, found=found, remedy=remedy)


def fail(name: str, found: str, remedy: str) -> Check:
    """It does not work."""
    return Check(name=name, grade=Grade.FAIL, found=found, remedy=remedy)
