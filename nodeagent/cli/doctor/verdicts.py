"""The result of a check: a grade, a finding and a command to paste."""

from collections.abc import Sequence
from enum import StrEnum

from nodeagent.cli.answers.table import paint, wrap
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


SIGNS = {Grade.OK: ("✓ ok  ", "good"), Grade.WARN: ("! warn", "warn"), Grade.FAIL: ("✗ fail", "bad")}
SIGN_WIDTH = 8


def render_checks(checks: Sequence[Check], *, width: int, colour: bool) -> str:
    """A line per check, and below it the remedy, if any; long lines are wrapped, never cut."""
    indent = SIGN_WIDTH + max(len(check.name) for check in checks) + 2
    lines = []
    for check in checks:
        sign, style = SIGNS[check.grade]
        first, *rest = wrap(check.found, width - indent)
        lines.append(f"{paint(sign, style, colour=colour)}  {check.name:<{indent - SIGN_WIDTH}}{first}")
        lines += [f"{'':<{indent}}{line}" for line in rest]
        if check.remedy:
            first, *rest = wrap(check.remedy, width - indent - 2)
            lines.append(f"{'':<{indent}}{paint('→', 'dim', colour=colour)} {first}")
            lines += [f"{'':<{indent + 2}}{line}" for line in rest]
    counts = {grade: sum(check.grade is grade for check in checks) for grade in Grade}
    lines += ["", ", ".join(f"{count} {grade}" for grade, count in counts.items())]
    return "\n".join(lines) + "\n"
