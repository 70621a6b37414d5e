"""The doctor's findings in a terminal; pure."""

from collections.abc import Sequence

from nodeagent.cli.answers.table import paint, wrap
from nodeagent.cli.doctor.verdicts import Check, Grade

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
