"""Long lives, minutes of the world and a day of a clock that runs fast, at night; and how growth is told."""

import subprocess
import sys
from pathlib import Path

import pytest

from tests.soak.measures import SLACK, Moment, find_growth

RESULTS = Path("results")


def live(hours: float, speed: int, timeout_seconds: float, *words: str) -> None:
    result = ["--result", str(RESULTS / "soak.jsonl")] if RESULTS.is_dir() else []
    command = [sys.executable, "-m", "tests.soak", "--hours", str(hours), "--speed", str(speed), *words, *result]
    done = subprocess.run(command, capture_output=True, text=True, timeout=timeout_seconds, check=False)
    assert done.returncode == 0, f"{' '.join(command)}\n{done.stdout[-6000:]}{done.stderr[-3000:]}"


@pytest.mark.nightly
@pytest.mark.timeout(4000)
def test_a_day_leaves_nothing_behind() -> None:
    """After 24 hours of pods, faults, reloads and restarts the agent has no more of anything, and has lost nothing."""
    live(24, 40, 3900)


@pytest.mark.nightly
@pytest.mark.timeout(4000)
def test_a_day_with_all_doors_open_leaves_nothing_behind() -> None:
    """The same with parts, claims, layouts and daemons, and doors that people move."""
    live(24, 40, 3900, "--rooms")


@pytest.mark.nightly
@pytest.mark.timeout(4000)
def test_a_day_with_repairs_leaves_nothing_behind() -> None:
    """The same with GPUs that need repairs, resets that fail, and nodes that reboot."""
    live(24, 40, 3900, "--repairs")


@pytest.mark.nightly
@pytest.mark.timeout(1500)
def test_minutes_of_the_world_leave_nothing_behind() -> None:
    """The same for ten minutes by the world's clock, with the settings that a node has."""
    live(1 / 6, 1, 1400)


def make_moments(**growth: float) -> list[Moment]:
    return [
        Moment(
            hours=float(hour),
            pss_mib=50 + hour,  # which other processes make grow
            **{name: 50 + growth.get(name, 0) * hour for name in SLACK},  # type: ignore[arg-type]  # numbers all
        )
        for hour in range(17)
    ]


@pytest.mark.parametrize("name", SLACK)
def test_what_grows_is_named(name: str) -> None:
    """A little more each hour is found, and only that is named."""
    assert find_growth(make_moments()) == []
    (told,) = find_growth(make_moments(**{name: SLACK[name] / 8}))
    assert told.startswith(f"{name} grew from ")


def test_a_fresh_start_counts_for_nothing() -> None:
    """The first look finds an agent that has not yet filled its caches."""
    moments = make_moments()
    assert find_growth([moments[0]._replace(rss_mib=10.0), *moments[1:]]) == []
