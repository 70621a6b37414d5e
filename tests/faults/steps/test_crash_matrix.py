"""The agent killed at every step by which it changes a file system, of which none is left out."""

import json
import subprocess
import sys
from pathlib import Path
from typing import Any, get_args

import pytest

from nodeagent.components.allocations.ledger import Record
from tests.faults.steps import alone
from tests.faults.steps.left_out import WITHOUT_NODES, find_idle, find_reason
from tests.faults.steps.points import find_in_text, find_points

PLANTED = """
def write(path, other, struct):
    path.write_bytes(b"x")
    os.open(path, os.O_RDONLY)
    os.open(path, os.O_WRONLY | os.O_CREAT)
    path.replace(other)
    "a".replace("a", "b")
    struct.replace(a=1)
    write_atomically(
        path, b"x"
    )
    stack.callback(path.unlink)
    open(path, "rb"), path.open("a+b"), open(path, mode="w")
    log.bind(path="a"), listener.bind(str(path)), listener.bind(("", 1))
    shutil.copyfile(path, other)
"""
EVEN_SO = frozenset(
    {
        "edge/mps/host.py mkdir",
        "edge/mps/host.py rmdir",
        "edge/host/shim/shim_host.py unlink",
        "edge/host/files/atomic_file.py unlink",
    }
)
"""Of these one line is met and another is not."""


def run(module: str, *words: str) -> dict[str, Any]:
    command = [sys.executable, "-m", module, *words]
    done = subprocess.run(command, capture_output=True, text=True, timeout=3500, check=False)
    assert done.stdout, done.stderr[-3000:]
    told: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    assert not told.get("fault"), f"{' '.join(command)}\n{told['fault'][:6000]}\nafter {told['deaths'][-5:]}"
    return told


def list_met(*runs: dict[str, Any]) -> set[str]:
    return {point for told in runs for note in told["notes"] for point in note["points"]}


def list_deaths(tour: dict[str, Any], phases: tuple[str, ...]) -> set[str]:
    """Those that are due; none after a step that never changed anything, as where a directory is there already."""
    return {
        f"{phase} {one['step']}" for one in tour["notes"] for phase in phases if one["is_done"] == (phase == "after")
    }


def check_counts(tour: dict[str, Any], pieces: dict[str, Any], phases: tuple[str, ...]) -> None:
    """Every point of the code was met or has a reason, every record was written, and each step was died of."""
    met, points = list_met(tour, pieces), find_points()
    missed = [str(point) for point in points if str(point) not in met and find_reason(point) is None]
    if not pieces["made_nodes"]:
        missed = [each for each in missed if not each.startswith(WITHOUT_NODES)]
    assert missed == []
    superfluous = {find_reason(point) for point in points if str(point) in met} - {None} - EVEN_SO
    assert superfluous == set()
    written = {record for note in tour["notes"] for record in note["records"].split("+")}
    # The first record of a journal is written with the whole file, which is a step by its place.
    assert {each.__struct_config__.tag for each in get_args(Record)} - {"opened"} <= written
    died = set(tour["deaths"])
    assert list_deaths(tour, phases) <= died
    assert len(tour["deaths"]) == len(died)


def test_points_are_found_by_what_they_do() -> None:
    """What makes, changes or removes a file is one, called or handed on; what only looks like it is none."""
    found = [(point.first, point.last, point.call) for point in find_in_text("x.py", PLANTED)]
    assert sorted(found) == [
        (3, 3, "write_bytes"),
        (5, 5, "open"),
        (6, 6, "replace"),
        (9, 11, "write_atomically"),
        (12, 12, "unlink"),
        (13, 13, "open"),
        (13, 13, "open"),
        (14, 14, "bind"),
        (15, 15, "copyfile"),
    ]


@pytest.mark.long
def test_nothing_is_left_out_that_is_not_there() -> None:
    """A reason for a point that is gone would hide the next one of that name."""
    assert find_idle(find_points()) == ()


@pytest.mark.long
@pytest.mark.timeout(600)
def test_what_stands_alone_is_whole_after_a_death_at_each_of_its_steps(tmp_path: Path) -> None:
    """Files of runtimes, markers, features, the shim's table and device nodes, and nothing half written stays."""
    assert run(alone.__name__, str(tmp_path))["faults"] == {}


@pytest.mark.nightly
@pytest.mark.timeout(3600)
def test_an_agent_killed_after_each_step_knows_all_that_it_said(tmp_path: Path) -> None:
    """One node, one tour, every step once: nothing acknowledged is lost or doubled, and all is given back."""
    pieces = run(alone.__name__, str(tmp_path))
    tour = run("tests.faults.steps", "--phases", "after")
    check_counts(tour, pieces, ("after",))


@pytest.mark.nightly
@pytest.mark.timeout(3600)
def test_an_agent_killed_before_and_after_each_step_at_each_place_knows_all_that_it_said(tmp_path: Path) -> None:
    """The same with each file for itself, before the step too."""
    pieces = run(alone.__name__, str(tmp_path))
    tour = run("tests.faults.steps", "--by-place")
    check_counts(tour, pieces, ("before", "after"))
