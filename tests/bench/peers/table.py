"""The table: what each side takes, the ratio turn by turn, and the goal that it is held against."""

import statistics
from collections.abc import Sequence
from typing import NamedTuple

import msgspec

from tests.bench.compare import Rows, join

QUIET, BESIDE = "quiet", "beside neighbours"
Turn = tuple[Rows, Rows]
"""What was measured of the agent and of the originals, one after the other."""


class Goal(NamedTuple):
    """How much of theirs a row of ours may be; without a limit the row is told."""

    row: str
    share: str = "p50"
    limit: float | None = None
    beside: float | None = None
    """The limit beside neighbours, where it is another one."""
    is_of_ours: bool = False
    """Whether ours by itself is held against the limit, and not the ratio."""

    def find_limit(self, setting: str) -> float | None:
        return self.beside if setting == BESIDE and self.beside is not None else self.limit


class Line(msgspec.Struct, frozen=True):
    """One row of the table."""

    group: str
    setting: str
    original: str
    row: str
    share: str
    unit: str
    ours: float
    theirs: float | None
    ratios: tuple[float, ...] = ()
    """Turn by turn; none where theirs is nothing."""
    limit: float | None = None
    is_of_ours: bool = False

    @property
    def ratio(self) -> float | None:
        return statistics.median(self.ratios) if self.ratios else None

    @property
    def verdict(self) -> str:
        """Whether the goal is reached; a row without one is told."""
        if self.limit is None:
            return "told"
        held = self.ours if self.is_of_ours else self.ratio
        is_kept = held <= self.limit if held is not None else not self.ours
        return "ok" if is_kept else "OVER"


class LeftOut(msgspec.Struct, frozen=True):
    """A group of rows that could not be had here."""

    group: str
    setting: str
    why: str


class Where(NamedTuple):
    """The group of rows, the setting that it was measured in, and whom it was measured beside."""

    group: str
    setting: str
    original: str


def judge(turns: Sequence[Turn], goals: Sequence[Goal], where: Where) -> list[Line]:
    """A line for each goal whose row was measured."""
    ours, theirs = [one for one, _ in turns], [other for _, other in turns]
    lines = []
    for goal in goals:
        if goal.row not in ours[0]:
            continue
        ratios = {each.name: each.turns for each in join(turns, goal.share)}
        lines.append(
            Line(
                *where,
                row=goal.row,
                share=goal.share,
                unit=str(ours[0][goal.row]["unit"]),
                ours=_find_median(ours, goal),
                theirs=_find_median(theirs, goal) if goal.row in theirs[0] else None,
                ratios=ratios.get(goal.row, ()),
                limit=goal.find_limit(where.setting),
                is_of_ours=goal.is_of_ours,
            )
        )
    return lines


def _find_median(measured: Sequence[Rows], goal: Goal) -> float:
    return statistics.median(float(str(rows[goal.row][goal.share])) for rows in measured)


def render(lines: Sequence[Line], left_out: Sequence[LeftOut]) -> str:
    """The table as people read it."""
    head = (
        f"{'what':<50} {'unit':<4} {'setting':<17} {'ours':>9} {'theirs':>9} {'ratio':>6} {'spread':<11} {'goal':<13}"
    )
    return "\n".join([f"{head} beside", *map(_render_line, lines), *map(_render_left_out, left_out)])


def _render_line(line: Line) -> str:
    theirs = "" if line.theirs is None else f"{line.theirs:.2f}"
    ratio = "" if line.ratio is None else f"{line.ratio:.2f}"
    spread = f"{min(line.ratios):.2f}..{max(line.ratios):.2f}" if line.ratios else ""
    return (
        f"{f'{line.row}, {line.share}':<50} {line.unit:<4} {line.setting:<17} {line.ours:>9.2f} {theirs:>9} {ratio:>6} "
        f"{spread:<11} {render_goal(line):<13} {line.original}"
    )


def render_goal(line: Line) -> str:
    """The goal and whether it is reached."""
    if line.limit is None:
        return line.verdict
    return f"{'ours ' if line.is_of_ours else ''}<= {line.limit:g} {line.verdict}"


def _render_left_out(each: LeftOut) -> str:
    return f"{each.group}, {each.setting}: left out: {' '.join(each.why.split())[:400]}"
