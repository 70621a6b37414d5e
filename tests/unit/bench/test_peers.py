"""The table of ratios beside NVIDIA's programs: what a goal is held against, and what is said of a row without one."""

import sys
from collections.abc import Iterator
from pathlib import Path

import msgspec
import pytest

from tests.bench import __main__ as bench
from tests.bench.peers import contests
from tests.bench.peers.contests import Contest
from tests.bench.peers.originals import Built
from tests.bench.peers.table import BESIDE, QUIET, Goal, Line, Turn, Where, judge, render
from tests.bench.rows import Row, index_rows
from tests.integration.runtimes.releases import NotBuilt

GOALS = (Goal("pair", limit=1.0, beside=2.0), Goal("pair", "p99"), Goal("refused", limit=0.0, is_of_ours=True))


def make_turn(ours: float, theirs: float, *, refused: float = 0.0) -> Turn:
    return (
        index_rows([Row("pair", "ms", [ours]), Row("refused", "", [refused])]),
        index_rows([Row("pair", "ms", [theirs]), Row("refused", "", [5.0])]),
    )


def find(lines: list[Line], row: str, share: str = "p50") -> Line:
    (line,) = [each for each in lines if (each.row, each.share) == (row, share)]
    return line


def test_a_goal_is_held_against_the_middle_of_the_turns() -> None:
    """One slow turn of ours does not miss it, and one fast turn does not reach it."""
    turns = [make_turn(1.0, 2.0), make_turn(9.0, 2.0), make_turn(1.2, 2.0)]
    line = find(judge(turns, GOALS, Where("pair", QUIET, "theirs")), "pair")
    assert (line.ours, line.theirs, line.ratio, line.verdict) == (1.2, 2.0, 0.6, "ok")
    assert find(judge([make_turn(3.0, 2.0)], GOALS, Where("pair", QUIET, "theirs")), "pair").verdict == "OVER"


def test_a_goal_may_be_another_beside_neighbours() -> None:
    turns = [make_turn(3.0, 2.0)]
    assert find(judge(turns, GOALS, Where("pair", BESIDE, "theirs")), "pair").verdict == "ok"
    assert find(judge(turns, GOALS, Where("pair", BESIDE, "theirs")), "pair", "p99").verdict == "told"


@pytest.mark.parametrize(("refused", "verdict"), [(0.0, "ok"), (1.0, "OVER")])
def test_a_goal_of_ours_does_not_ask_what_theirs_is(refused: float, verdict: str) -> None:
    """That theirs refuses more does not make one refusal of ours a goal that is reached."""
    lines = judge([make_turn(1.0, 2.0, refused=refused)], GOALS, Where("pair", QUIET, "theirs"))
    assert find(lines, "refused").verdict == verdict


@pytest.mark.parametrize(("ours", "verdict"), [(0.0, "ok"), (1.0, "OVER")])
def test_beside_nothing_only_nothing_is_enough(ours: float, verdict: str) -> None:
    """Nothing divides by zero; who asks nothing is reached by nobody who asks."""
    line = find(judge([make_turn(ours, 0.0)], GOALS, Where("pair", QUIET, "theirs")), "pair")
    assert (line.ratio, line.verdict) == (None, verdict)


def test_what_only_one_side_has_is_told() -> None:
    """A row that was not measured here has no line; one that theirs lacks has ours alone."""
    ours, theirs = index_rows([Row("served", "ms", [7.0])]), index_rows([])
    (line,) = judge([(ours, theirs)], (*GOALS, Goal("served")), Where("pair", QUIET, "theirs"))
    assert (line.row, line.ours, line.theirs, line.verdict) == ("served", 7.0, None, "told")


@pytest.fixture
def made_up(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Two groups, of which one has an original that cannot be built."""

    def measure(original: Built, turns: int) -> Iterator[Turn]:
        for _ in range(turns):
            yield make_turn(1.0, 2.0)

    def refuse() -> Built:
        raise NotBuilt(["go", "build"], "the module proxy does not have it")

    found = {
        "pair": Contest(lambda: Built(Path(), "an original"), measure, GOALS),
        "claims": Contest(refuse, measure, GOALS),
    }
    monkeypatch.setattr(contests, "CONTESTS", found)
    monkeypatch.chdir(tmp_path)


def run(monkeypatch: pytest.MonkeyPatch, *words: str) -> int:
    monkeypatch.setattr(sys, "argv", ["bench", "--peers", *words])
    return bench.main()


def test_the_table_has_a_row_for_each_goal_and_what_was_left_out(
    made_up: None, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    """One original that does not build fails the command, and no other row."""
    assert run(monkeypatch, "--pairs", "2") == 1
    told = capsys.readouterr()
    rows = [line for line in told.out.splitlines() if line.endswith("an original")]
    assert rows[0].split() == [
        "pair,",
        "p50",
        "ms",
        QUIET,
        "1.00",
        "2.00",
        "0.50",
        "0.50..0.50",
        *["<=", "1", "ok", "an", "original"],
    ]
    assert len(rows) == len(GOALS)
    assert f"claims, {QUIET}: left out: go build: the module proxy does not have it" in told.out
    assert "turn 2 of 2" in told.err
    (kept,) = (tmp_path / "results").iterdir()
    document = msgspec.json.decode(kept.read_bytes())
    assert [line["ratios"] for line in document["lines"]] == [[0.5, 0.5], [0.5, 0.5], [0.0, 0.0]]
    assert [each["group"] for each in document["left_out"]] == ["claims"]


def test_one_group_alone_passes(
    made_up: None, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(monkeypatch, "--only", "pair", "--pairs", "1") == 0
    assert "claims" not in capsys.readouterr().out


def test_a_group_of_the_other_benches_is_refused(
    made_up: None, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit):
        run(monkeypatch, "--only", "bus")
    assert "--only bus: with --peers the groups are pair, claims" in capsys.readouterr().err


def test_a_row_that_nobody_has_is_no_line() -> None:
    assert "pair" not in render(judge([(index_rows([]), index_rows([]))], GOALS, Where("pair", QUIET, "theirs")), [])
