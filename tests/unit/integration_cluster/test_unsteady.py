"""A scenario that failed is run again alone at the end; what that means for the run, tried on runs of pytest itself."""

import re
import subprocess
import sys
from pathlib import Path

import pytest

import tests
from tests.integration.unsteady import KNOWN, MOST_AGAIN, judge, read_known

ROOT = Path(tests.__file__).parents[1]
pytestmark = [pytest.mark.slow, pytest.mark.long]
SCENARIOS = """
import os
from pathlib import Path
import pytest

TOLD = Path(__file__).with_name("told")

def tell(word):
    with TOLD.open("a") as told:
        told.write(word + "\\n")

def fails_at_first(word):
    tell(word)
    assert TOLD.read_text().splitlines().count(word) > 1, f"{word} was busy"

@pytest.fixture(scope="session")
def cluster():
    tell("cluster up")
    yield
    tell("cluster down")

@pytest.fixture(scope="module")
def agent(cluster):
    tell("agent up")
    yield
    tell("agent down")
"""


def run_scenarios(directory: Path, scenarios: str, *arguments: str) -> tuple[int, list[str], list[str]]:
    """The status, what pytest said, and what the scenarios told while they ran."""
    (directory / "test_scenarios.py").write_text(SCENARIOS + scenarios)
    command = [sys.executable, "-m", "pytest", "-p", "tests.integration.unsteady", "-p", "no:cacheprovider"]
    places = [f"--config-file={ROOT / 'pyproject.toml'}", f"--rootdir={directory}", str(directory)]
    done = subprocess.run(
        [*command, *places, *arguments], check=False, cwd=ROOT, capture_output=True, text=True, timeout=100
    )
    told = directory / "told"
    said = [line for line in done.stdout.splitlines() if line]
    return done.returncode, said, told.read_text().splitlines() if told.exists() else []


def test_one_that_passes_when_run_again_is_named_and_the_run_goes_on(tmp_path: Path) -> None:
    """After all the others, with an agent of its own on the same cluster; pytest's last line counts each once."""
    scenarios = """
def test_busy(agent): fails_at_first("busy")
def test_sound(agent): tell("sound")
"""
    status, said, told = run_scenarios(tmp_path, scenarios)
    assert (status, said[-2]) == (0, "UNSTEADY test_scenarios.py::test_busy - AssertionError: busy was busy")
    assert re.search(r"= 2 passed in ", said[-1])
    assert told == [
        *("cluster up", "agent up", "busy", "sound", "agent down"),
        *("agent up", "busy", "agent down", "cluster down"),
    ]


def test_one_that_fails_again_has_failed(tmp_path: Path) -> None:
    """Once, and with what it said the second time; the last of all to run is no exception."""
    scenarios = """
def test_sound(): pass
def test_broken():
    print("attempt", TOLD.read_text().count("broken") if TOLD.exists() else 0)
    tell("broken")
    assert False, "is broken"
"""
    status, said, told = run_scenarios(tmp_path, scenarios)
    assert (status, told) == (1, ["broken", "broken"])
    assert re.search(r"= 1 failed, 1 passed in ", said[-1])
    assert [line for line in said if line.startswith("attempt")] == ["attempt 1"]
    assert not [line for line in said if line.startswith("UNSTEADY")]


@pytest.mark.nightly
@pytest.mark.parametrize(
    ("phase", "body"), [("setup", "fails_at_first('x'); yield"), ("teardown", "yield; fails_at_first('x')")]
)
def test_what_comes_before_and_after_a_scenario_may_be_unsteady_too(tmp_path: Path, phase: str, body: str) -> None:
    """And is counted as passed once."""
    scenarios = f"""
@pytest.fixture
def pods(): {body}
def test_pods(pods): pass
"""
    status, said, _told = run_scenarios(tmp_path, scenarios)
    assert (status, said[-2]) == (0, f"UNSTEADY test_scenarios.py::test_pods - {phase}: AssertionError: x was busy")
    assert re.search(r"= 1 passed in ", said[-1])


def test_more_than_three_fail_the_run(tmp_path: Path) -> None:
    """Though every one of them has passed when run again."""
    scenarios = (
        "@pytest.mark.parametrize('number', range(4))\ndef test_busy(number): fails_at_first(f'number {number}')\n"
    )
    status, said, _told = run_scenarios(tmp_path, scenarios)
    assert (status, said[-2]) == (1, "the run has failed: 4 are unsteady, more than 3")
    assert re.search(r"= 4 passed in ", said[-1])


@pytest.mark.nightly
def test_one_that_was_known_before_fails_the_run(tmp_path: Path) -> None:
    known = tmp_path / "known.txt"
    known.write_text("# those of last week\ntest_scenarios.py::test_busy  # on a slow disk\n")
    scenarios = "def test_busy(): fails_at_first('busy')\n"
    status, said, _told = run_scenarios(tmp_path, scenarios, f"--known-unsteady={known}")
    assert status == 1
    assert said[-2] == (
        "the run has failed: known to be unsteady before, and still not mended: test_scenarios.py::test_busy"
    )


@pytest.mark.nightly
def test_nothing_is_run_again_where_the_first_failure_ends_the_run(tmp_path: Path) -> None:
    """Who says -x wants to see it."""
    status, said, told = run_scenarios(tmp_path, "def test_busy(): fails_at_first('busy')\n", "-x")
    assert (status, told) == (1, ["busy"])
    assert re.search(r"= 1 failed in ", said[-1])


@pytest.mark.nightly
def test_a_run_that_ends_before_its_end_says_what_had_failed(tmp_path: Path) -> None:
    """A failure that nobody has looked at again is one."""
    scenarios = (
        "def test_busy(): fails_at_first('busy')\ndef test_ends(): pytest.exit('the machine is gone', returncode=0)\n"
    )
    status, said, _told = run_scenarios(tmp_path, scenarios)
    assert status != 0
    assert any(
        line.startswith("FAILED test_scenarios.py::test_busy - AssertionError: busy was busy (") for line in said
    )


@pytest.mark.nightly
def test_where_everything_fails_not_everything_is_run_again(tmp_path: Path) -> None:
    """Beyond a number, a failure is told at once."""
    more = MOST_AGAIN + 2
    scenarios = f"@pytest.mark.parametrize('number', range({more}))\ndef test_broken(number): tell('x'); assert False\n"
    status, said, told = run_scenarios(tmp_path, scenarios)
    assert (status, len(told)) == (1, more + MOST_AGAIN)
    assert re.search(rf"= {more} failed in ", said[-1])


def test_three_of_nobody_knew_are_no_failure() -> None:
    """The limit itself is allowed."""
    assert judge(frozenset("abc"), frozenset("d")) == ""


def test_the_list_names_scenarios_that_there_are() -> None:
    """One that was renamed would be forgotten."""
    for nodeid in read_known(KNOWN):
        file, _, name = nodeid.partition("::")
        assert f"def {name.partition('[')[0].rpartition('::')[2]}(" in (ROOT / file).read_text()
