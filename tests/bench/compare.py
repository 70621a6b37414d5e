"""This tree against another commit, in turns, so that what the machine does meanwhile hits both alike.

A ratio counts as beyond noise when every turn agrees on its direction and their median is off by more than the
spread of the turns; fewer than five turns can never prove that.
"""

import json
import statistics
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

FEWEST_TURNS = 5
Rows = dict[str, dict[str, object]]
"""What was measured, by name."""


class Ratio(NamedTuple):
    """One row of both trees: this one's medians over the other's, turn by turn."""

    name: str
    unit: str
    here: float
    there: float
    turns: tuple[float, ...]

    @property
    def verdict(self) -> str:
        """`slower`, `faster`, or nothing when it may be noise."""
        if len(self.turns) < FEWEST_TURNS or min(self.turns) <= 1 <= max(self.turns):
            return ""
        off = abs(statistics.median(self.turns) - 1)
        if off <= statistics.pstdev(self.turns):
            return ""
        return "slower" if min(self.turns) > 1 else "faster"


def compare(reference: str, words: Sequence[str], *, pairs: int) -> str:
    """Measure both, `pairs` times each, and show the ratios."""
    with tempfile.TemporaryDirectory(prefix="nb-ref-") as directory:
        tree = Path(directory) / "tree"
        subprocess.run(["git", "worktree", "add", "--quiet", "--detach", tree, reference], check=True)
        try:
            # Else its first start would pay for compiling, which ours has done long ago.
            subprocess.run([sys.executable, "-m", "compileall", "-q", "nodeagent", "tests"], cwd=tree, check=True)
            turns = [(_measure(Path.cwd(), words), _measure(tree, words)) for _ in range(pairs)]
        finally:
            subprocess.run(["git", "worktree", "remove", "--force", tree], check=True)
    return render(join(turns), reference)


def _measure(tree: Path, words: Sequence[str]) -> Rows:
    # The tree that a command is started in comes first on its path, whatever the environment has installed.
    done = subprocess.run(
        [sys.executable, "-m", "tests.bench", "--json", *words], cwd=tree, check=True, stdout=subprocess.PIPE, text=True
    )
    return {row["name"]: row for row in json.loads(done.stdout)}


def join(turns: Sequence[tuple[Rows, Rows]], share: str = "p50") -> list[Ratio]:
    """What both have; rows of one alone cannot be compared."""
    first_here, first_there = turns[0]
    ratios = []
    for name in (name for name in first_here if name in first_there):
        here = [float(str(one[name][share])) for one, _ in turns]
        there = [float(str(one[name][share])) for _, one in turns]
        each = tuple(mine / theirs for mine, theirs in zip(here, there, strict=True) if theirs)
        if each:
            unit = str(first_here[name]["unit"])
            ratios.append(Ratio(name, unit, statistics.median(here), statistics.median(there), each))
    return ratios


def render(ratios: Sequence[Ratio], reference: str, share: str = "p50") -> str:
    """The table as people read it."""
    head = f"{f'measure, {share}':<44} {'unit':<4} {'here':>9} {reference[:12]:>12} {'ratio':>7}  spread"
    return "\n".join([head, *map(_render_ratio, ratios)])


def _render_ratio(ratio: Ratio) -> str:
    middle = statistics.median(ratio.turns)
    spread = f"{min(ratio.turns):.2f}..{max(ratio.turns):.2f}"
    return (
        f"{ratio.name:<44} {ratio.unit:<4} {ratio.here:>9.2f} {ratio.there:>12.2f} {middle:>7.2f}"
        f"  {spread} {ratio.verdict}".rstrip()
    )
