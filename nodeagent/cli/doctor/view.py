"""The doctor's findings in a terminal; pure."""

from collections.abc import Sequence

from nodeagent.cli.doctor.verdicts import Check, Grade
from nodeagent.cli.table import clean, paint

SIGNS = {Grade.OK: ("✓ ok  ", "good"), Grade.WARN: ("! warn", "warn"), Grade.FAIL: ("✗ fail", "bad")}


def render_checks(checks: Sequence[Check], *, colour: bool) -> str:
    """A line per check, and below it what to do where something is."""
    width = max(len(check.name) for check in checks)
    lines = []
    for check in checks:
        sign, style = SIGNS[check.grade]
        lines.append(f"{paint(sign, style, colour=colour)}  {check.name:<{width}}  {clean(check.found)}")
        if check.remedy:
            lines.append(f"{'':<8}{'':<{width}}  {paint('→', 'dim', colour=colour)} {clean(check.remedy)}")
    counts = {grade: sum(check.grade is grade for check in checks) for grade in Grade}
    lines += ["", ", ".join(f"{count} {grade}" for grade, count in counts.items())]
    return "\n".join(lines) + "\n"
