"""Scenarios that use the cluster run beside those that do not; tried on runs of pytest itself."""

import os
import re
import select
import signal
import subprocess
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

import pytest

import tests
from tests.integration.lanes import combine, take_half

ROOT = Path(tests.__file__).parents[1]
LIMIT_SECONDS = 60.0
FIXTURES = """
from pathlib import Path
import pytest

@pytest.fixture(scope="session")
def cluster():
    yield
    Path(__file__).with_name("cluster down").touch()

@pytest.fixture
def node(cluster): return cluster

@pytest.fixture
def here(): return Path(__file__).parent
"""
SOUND = "def test_files(here): pass\n"
pytestmark = [pytest.mark.slow, pytest.mark.long]


@contextmanager
def running(directory: Path, pods: str, containers: str, *arguments: str) -> Iterator[subprocess.Popen[str]]:
    """Two files of scenarios: the first has one that uses the cluster, the second has none."""
    (directory / "conftest.py").write_text(FIXTURES)
    (directory / "test_pods.py").write_text(f"def test_pods(node, here): {pods}\n{SOUND}")
    (directory / "test_containers.py").write_text(f"def test_containers(here): {containers}\n{SOUND}")
    places = (f"--config-file={ROOT / 'pyproject.toml'}", f"--rootdir={directory}", str(directory))
    command = (sys.executable, "-m", "tests.integration.lanes", "-q", "-p", "no:cacheprovider", *places, *arguments)
    with subprocess.Popen(command, cwd=ROOT, stdout=subprocess.PIPE, text=True) as run:
        try:
            yield run
        finally:
            run.terminate()


def run_lanes(directory: Path, pods: str, containers: str, *arguments: str) -> tuple[int, str]:
    with running(directory, pods, containers, *arguments) as run:
        said, _ = run.communicate(timeout=LIMIT_SECONDS)
    return run.returncode, said


def test_the_lanes_run_at_one_time(tmp_path: Path) -> None:
    """Each has a scenario that waits for the other's; no file is divided, and what both say is heard."""
    os.mkfifo(tmp_path / "meeting")
    said = run_lanes(tmp_path, "(here / 'meeting').read_text()", "(here / 'meeting').write_text('here')")
    assert (said[0], said[1].count("2 passed, 2 deselected")) == (0, 2)


@pytest.mark.nightly
@pytest.mark.parametrize(("pods", "containers"), [("assert False", "pass"), ("pass", "assert False")])
def test_a_failure_in_either_lane_fails_the_run(tmp_path: Path, pods: str, containers: str) -> None:
    status, said = run_lanes(tmp_path, pods, containers)
    assert status == 1
    failed = "test_containers" if pods == "pass" else "test_pods"
    assert re.findall(r"^FAILED .*::(\w+)", said, re.MULTILINE) == [failed]


@pytest.mark.nightly
@pytest.mark.parametrize(("word", "status"), [("test_pods.py", 0), ("test_containers.py", 0), ("neither", 5)])
def test_a_choice_may_leave_a_lane_empty_but_not_both(tmp_path: Path, word: str, status: int) -> None:
    """Else a word that was misspelt would pass."""
    assert run_lanes(tmp_path, "pass", "pass", "-k", word)[0] == status


@pytest.mark.nightly
@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_both_lanes_clean_up_when_the_run_is_interrupted(tmp_path: Path, number: signal.Signals) -> None:
    """The cluster is removed, and nobody runs on."""
    for name in ("pods", "containers", "never"):
        os.mkfifo(tmp_path / name)
    stuck = "(here / {!r}).write_text(''); (here / 'never').read_text()"
    with running(tmp_path, stuck.format("pods"), stuck.format("containers")) as run:
        wait_opened(tmp_path / "pods", tmp_path / "containers")
        run.send_signal(number)
        said, _ = run.communicate(timeout=LIMIT_SECONDS)
    assert (run.returncode, said.count("! KeyboardInterrupt !")) == (2, 2)
    assert (tmp_path / "cluster down").exists()


@pytest.mark.parametrize("lane", ["cluster", "second-cluster"])
def test_files_that_use_a_cluster_are_divided_among_two(tmp_path: Path, lane: str) -> None:
    """Each lane has one of the two files, whole."""
    (tmp_path / "conftest.py").write_text(FIXTURES)
    for name in ("a", "b"):
        (tmp_path / f"test_{name}.py").write_text(f"def test_{name}(node): pass\n")
    places = (f"--config-file={ROOT / 'pyproject.toml'}", f"--rootdir={tmp_path}", str(tmp_path))
    command = (sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "-p", "tests.integration.lanes", *places)
    done = subprocess.run(
        (*command, f"--lane={lane}"),
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=False,
        timeout=LIMIT_SECONDS,
    )
    assert re.search(r"^1 passed", done.stdout, re.MULTILINE), done.stdout


@pytest.mark.parametrize(
    ("seconds", "half"),
    [({}, ""), ({"a": 5.0}, ""), ({"a": 1.0, "b": 5.0}, "a"), ({"a": 3.0, "b": 5.0, "c": 3.0}, "ac")],
)
def test_half_of_the_files_takes_about_half_of_the_time(seconds: dict[str, float], half: str) -> None:
    assert take_half({Path(name): limit for name, limit in seconds.items()}) == {Path(name) for name in half}


def wait_opened(*places: Path) -> None:
    """Return when each of these has been opened by who writes to it."""
    for place in places:
        handle = os.open(place, os.O_RDONLY | os.O_NONBLOCK)
        try:
            assert select.select([handle], [], [], LIMIT_SECONDS)[0], f"{place.name} is not running"
        finally:
            os.close(handle)


@pytest.mark.parametrize(
    ("statuses", "expected"), [((0, 0), 0), ((0, 5), 0), ((5, 5), 5), ((0, 1), 1), ((4, 1), 4), ((-9, 5), 137)]
)
def test_the_run_has_the_status_of_the_first_lane_that_failed(statuses: Sequence[int], expected: int) -> None:
    """One that was killed ends as a shell says it."""
    assert combine(statuses) == expected
