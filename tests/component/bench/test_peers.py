"""NVIDIA's own programs beside the agent with tiny numbers, and the neighbours of a measurement."""

import os
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.bench.peers import claims, parts, pieces, pods, scheduling
from tests.bench.peers.contests import CONTESTS
from tests.bench.peers.neighbours import BUSY_EACH, neighbours
from tests.bench.peers.originals import Built
from tests.bench.peers.table import QUIET, Turn, Where, judge
from tests.bench.whole import foreign
from tests.integration.runtimes.releases import BUILD_SECONDS

TINY: dict[str, Callable[[Built], Iterator[Turn]]] = {
    "pair": lambda built: pieces.measure_pair(built, 1, rounds=1),
    "environment": lambda built: pieces.measure_environment(built, 1, rounds=3),
    "prepare": lambda built: claims.measure(built, 1, claims.Sizes(one=5, few=5, many=10, calls=10)),
    "parts": lambda built: parts.measure(built, 1, parts.Times(settle_seconds=2.0, quiet_seconds=2.0)),
    "pods": lambda built: pods.measure(built, 1, count=2),
    "scheduling": lambda built: scheduling.measure(built, 1, sizes=(1000,), pods=2),
    "layout": lambda built: pieces.measure_layout(built, 1),
}

TOO_LARGE = {goal for goal in scheduling.GOALS if goal.row != scheduling.name_row(1000)}
ON_A_CLUSTER = ("prepare", "parts", "pods", "scheduling")
"""One after the other: a checkout has one cluster at a time."""


def test_neighbours_are_gone_with_their_block() -> None:
    """Busy ones for each processor and one that syncs; none is left."""
    with neighbours():
        children = Path(f"/proc/self/task/{os.getpid()}/children").read_text().split()
        assert len(children) >= BUSY_EACH * (os.cpu_count() or 1) + 1
    assert not any(Path(f"/proc/{pid}").exists() for pid in children)


@pytest.mark.nightly
@pytest.mark.timeout(BUILD_SECONDS)
@pytest.mark.skipif(
    os.geteuid() != 0 or shutil.which("go") is None,
    reason="device nodes and mounts are root's alone, and the originals are built with Go",
)
@pytest.mark.parametrize("names", [("pair",), ("environment",), ("layout",), ON_A_CLUSTER], ids="+".join)
def test_every_goal_has_its_row(names: tuple[str, ...], monkeypatch: pytest.MonkeyPatch) -> None:
    """Both sides do the work, and each row that a goal speaks of has been measured."""
    monkeypatch.setattr(foreign, "ROUNDS_EACH", 5)
    for name in names:
        contest = CONTESTS[name]
        original = contest.build()
        turns = list(TINY[name](original))
        lines = judge(turns, contest.goals, Where(name, QUIET, original.name))
        told = [(line.row, line.share) for line in lines]
        assert told == [(goal.row, goal.share) for goal in contest.goals if goal not in TOO_LARGE]
        assert {line.row for line in lines if line.theirs is None} <= {parts.SERVED}
        assert {line.ours for line in lines if line.row == claims.REFUSED} <= {0.0}


def test_every_contest_is_tried_with_tiny_numbers() -> None:
    assert TINY.keys() == CONTESTS.keys()
