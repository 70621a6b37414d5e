"""The result of a check: a grade, a finding and a command to paste."""

from enum import StrEnum

from nodeagent.model.values import Value


class Grade(StrEnum):
    """How a check ended."""

    OK = "ok"
    WARN = "warn"
    FAIL = "fail"


class Check(Value, frozen=True):
    """A line of the doctor."""

    name: str
    grade: Grade
    found: str
    remedy: str = ""
    """A command to paste, or advice where no command helps; empty when nothing is to be done."""


def ok(name: str, found: str) -> Check:
    """A finding without a problem."""
    return Check(name=name, grade=Grade.OK, found=found)


def warn(name: str, found: str, remedy: str) -> Check:
    """A check that passed with a warning."""
    return Check(name=name, grade=Grade.WARN, found=found, remedy=remedy)


def fail(name: str, found: str, remedy: str) -> Check:
    """A check that failed."""
    return Check(name=name, grade=Grade.FAIL, found=found, remedy=remedy)
