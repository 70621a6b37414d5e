"""What a run is, and what its output says; pure."""

import re
from collections.abc import Sequence

from msgspec import Struct

ALONE, CROWDED, GPU = "alone", "crowded", "GPU"
SHOWN = 3
"""Failures named on a line; the rest are counted."""
_FAILURE = re.compile(r"^(?:FAILED|ERROR) (\S+)", re.MULTILINE)


class Run(Struct, frozen=True):
    """One run of the tests, and how it ended."""

    number: int
    place: str
    seconds: float
    status: int
    failures: tuple[str, ...] = ()

    @property
    def has_passed(self) -> bool:
        """Whether every test did."""
        return self.status == 0


def choose_place(number: int, *, has_gpu: bool) -> str:
    """Where a run is: every other one beside a simulation and busy processes, and every fourth where a GPU seems to be.

    `has_gpu` is whether this machine can be made to seem so.
    """
    if number % 2 == 0:
        return CROWDED
    return GPU if has_gpu and number % 4 == 3 else ALONE


def find_failures(output: str) -> tuple[str, ...]:
    """The names of the tests that failed, each once, from pytest's summary."""
    return tuple(dict.fromkeys(_FAILURE.findall(output)))


def render_run(run: Run, runs: int) -> str:
    outcome = "passed" if run.has_passed else f"failed ({run.status})"
    more = len(run.failures) - SHOWN
    names = ", ".join((*run.failures[:SHOWN], *([f"and {more} more"] if more > 0 else [])))
    return f"{run.number:>3} of {runs}  {run.place:<7}  {run.seconds:6.0f} s  {outcome}{f': {names}' if names else ''}"


def render_end(runs: Sequence[Run]) -> str:
    failed = [run for run in runs if not run.has_passed]
    names = sorted({name for run in failed for name in run.failures})
    lines = [f"{len(runs) - len(failed)} of {len(runs)} runs passed"]
    lines += [f"  {sum(name in run.failures for run in failed)} times: {name}" for name in names]
    return "\n".join(lines)
