"""How runs are told, on a repository of a few lines in place of this one; and that no process outlives them."""

import contextlib
import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.shake.crowd import crowd, running
from tests.shake.gpu_machine import find_problem
from tests.shake.plan import ALONE, CROWDED, GPU, Run, choose_place, find_failures, render_end, render_run

PATIENCE_SECONDS = 30.0
needs_tools = pytest.mark.skipif(not (shutil.which("git") and shutil.which("make")), reason="needs git and make")
SUMMARY = """\
=========================== short test summary info ============================
SKIPPED [1] tests/a.py:1: needs root
FAILED tests/a.py::test_one - AssertionError: FAILED tests/not.py
FAILED tests/b.py::test_two[x]
ERROR tests/b.py::test_two[x] - LeakError
"""


def test_failures_are_named_once() -> None:
    """From the summary alone, whether they failed or what came after them did."""
    assert find_failures(SUMMARY) == ("tests/a.py::test_one", "tests/b.py::test_two[x]")
    assert find_failures("1 passed in 2 s") == ()


def test_half_of_the_runs_are_crowded() -> None:
    """Of any even number; half of the others are where a GPU seems to be, if that can be had."""
    places = [choose_place(number, has_gpu=True) for number in range(1, 6)]
    assert places == [ALONE, CROWDED, GPU, CROWDED, ALONE]
    assert [choose_place(number, has_gpu=False) for number in (2, 3)] == [CROWDED, ALONE]


def test_a_line_says_how_a_run_went() -> None:
    """Seconds, outcome and names, of which there may be too many."""
    assert render_run(Run(2, CROWDED, 61.4, 0), 10) == "  2 of 10  crowded      61 s  passed"
    failed = Run(3, ALONE, 5, 2, ("a", "b", "c", "d", "e"))
    assert render_run(failed, 10) == "  3 of 10  alone         5 s  failed (2): a, b, c, and 2 more"
    again = Run(4, CROWDED, 5, 2, ("a",))
    assert render_end([failed, again]).splitlines()[:2] == ["0 of 2 runs passed", "  2 times: a"]


MAKEFILE = """\
setup:
	@echo $$PWD >>{told}/setups
run:
	@echo $$$$ >>{told}/runs; exec sleep 600
test:
	@{wait}; test ! -e {told}/broken || {{ echo 'FAILED tests/x.py::test_x - it is broken'; exit 1; }}
"""


def make_source(source: Path, told: Path, *, wait: str) -> None:
    """A repository whose targets note what they do in a directory of the test's."""
    source.mkdir()
    (source / "Makefile").write_text(MAKEFILE.format(told=told, wait=wait))
    git = ("git", "-C", str(source), "-c", "user.name=nobody", "-c", "user.email=nobody@localhost")
    for words in (("init", "--quiet"), ("add", "."), ("commit", "--quiet", "-m", "begin")):
        subprocess.run([*git, *words], check=True)


@needs_tools
@pytest.mark.parametrize("is_broken", [False, True])
def test_every_run_has_a_clone_of_its_own(tmp_path: Path, *, is_broken: bool) -> None:
    """Two runs are two clones, the second beside a simulation that is gone afterwards; a failure is told and kept."""
    source, told = tmp_path / "source", tmp_path / "told"
    told.mkdir()
    if is_broken:
        (told / "broken").touch()
    make_source(source, told, wait=f'case "$$PWD" in "$$(tail -n 1 {told}/setups)") ;; *) exit 9 ;; esac')
    command = [
        sys.executable,
        "-m",
        "tests.shake",
        "--runs",
        "2",
        "--source",
        str(source),
        "--logs",
        str(tmp_path / "l"),
    ]
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=100)
    lines = done.stdout.splitlines()
    assert (done.returncode, len(lines)) == (1 if is_broken else 0, 4 if is_broken else 3), done.stdout + done.stderr
    assert all(("failed (2): tests/x.py::test_x" in line) == is_broken for line in lines[:2])
    assert sorted(file.name for file in tmp_path.glob("l/*")) == (["1.log", "2.log"] if is_broken else [])
    clones = (told / "setups").read_text().split()
    assert len(set(clones)) == 2
    assert not any(Path(clone).exists() for clone in clones)


@needs_tools
def test_a_place_may_be_asked_for(tmp_path: Path) -> None:
    """Then every run is there, and none where its number would have it."""
    source, told = tmp_path / "source", tmp_path / "told"
    told.mkdir()
    make_source(source, told, wait="true")
    words = ("--runs", "2", "--place", ALONE, "--source", str(source), "--logs", str(tmp_path / "logs"))
    done = subprocess.run([sys.executable, "-m", "tests.shake", *words], capture_output=True, text=True, check=False)
    assert [line.split()[3] for line in done.stdout.splitlines()[:2]] == [ALONE, ALONE], done.stdout + done.stderr
    assert not (told / "runs").exists()


@needs_tools
def test_one_that_is_told_to_end_leaves_nothing(tmp_path: Path) -> None:
    """In the midst of a run: the clone and what runs in it go first."""
    source, told = tmp_path / "source", tmp_path / "told"
    told.mkdir()
    make_source(source, told, wait="exec sleep 600")
    command = [sys.executable, "-m", "tests.shake", "--runs", "1", "--source", str(source)]
    with subprocess.Popen(command, stdout=subprocess.DEVNULL) as shake:
        setups = told / "setups"
        wait_until(lambda: setups.exists() and setups.read_text().endswith("\n"))
        shake.terminate()
        assert shake.wait(PATIENCE_SECONDS) == 128 + signal.SIGTERM
    assert not Path(setups.read_text().strip()).exists()


def wait_until(is_so: Callable[[], bool]) -> None:
    limit = time.monotonic() + PATIENCE_SECONDS
    while not is_so():
        assert time.monotonic() < limit
        time.sleep(0.02)


def list_group(leader: int) -> list[int]:
    """The processes of a group that are not yet dead."""
    found = []
    for entry in Path("/proc").glob("[0-9]*"):
        with contextlib.suppress(OSError):
            fields = (entry / "stat").read_text().rpartition(")")[2].split()
            if int(fields[2]) == leader and fields[0] != "Z":
                found.append(int(entry.name))
    return found


def test_a_command_takes_what_it_started_with_it(tmp_path: Path) -> None:
    """Also what does not listen to a polite word, and also where the block ends with an error."""
    script = "trap '' TERM; sleep 600 & echo up; wait"
    log = tmp_path / "log"
    leaders: list[int] = []

    def enter() -> None:
        with (
            log.open("wb") as output,
            running(("sh", "-c", script), tmp_path, os.environ, output, patience_seconds=0.5) as process,
        ):
            leaders.append(process.pid)
            wait_until(lambda: log.read_text() == "up\n")
            assert len(list_group(process.pid)) == 2
            raise InterruptedError

    with pytest.raises(InterruptedError):
        enter()
    assert list_group(leaders[0]) == []


@needs_tools
def test_busy_processes_end_with_the_one_who_wanted_them(tmp_path: Path) -> None:
    """Killed without a chance to clean up, it leaves neither them nor the simulation."""
    (tmp_path / "Makefile").write_text(MAKEFILE.format(told=tmp_path, wait="true"))
    script = (
        "import os, sys, time; from pathlib import Path; from tests.shake.crowd import crowd\n"
        f"with crowd(Path({str(tmp_path)!r}), os.environ): print('up', flush=True); time.sleep(600)"
    )
    with subprocess.Popen([sys.executable, "-c", script], stdout=subprocess.PIPE) as master:
        assert master.stdout is not None
        assert master.stdout.readline() == b"up\n"
        wait_until(lambda: (tmp_path / "runs").exists() and (tmp_path / "runs").read_text() != "")
        children = Path(f"/proc/{master.pid}/task/{master.pid}/children").read_text().split()
        assert len(children) == 5
        master.send_signal(signal.SIGKILL)
    simulation = (tmp_path / "runs").read_text().split()
    wait_until(lambda: not any(Path(f"/proc/{pid}").exists() for pid in (*children, *simulation)))


def test_a_crowd_is_gone_with_its_block(tmp_path: Path) -> None:
    (tmp_path / "Makefile").write_text(MAKEFILE.format(told=tmp_path, wait="true"))
    with crowd(tmp_path, os.environ):
        children = Path(f"/proc/self/task/{os.getpid()}/children").read_text().split()
    assert not any(Path(f"/proc/{pid}").exists() for pid in children)


SEEN = """
for path in /dev/nvidiactl /proc/driver/nvidia/version /sys/bus/pci/devices/*/vendor /sys/class/infiniband/mlx5_0 \
    /etc/cdi/nvidia.yaml /run/cdi/other.yaml /etc/containerd/config.toml; do test -e "$path" || echo "no $path"; done
ldconfig -p | grep -q libnvidia-ml.so.1 || echo no library
ls /etc/passwd /dev/null >/dev/null
exit 7
"""


@pytest.mark.skipif(bool(find_problem()), reason="wants root and NVIDIA's own libraries: make originals")
def test_a_machine_seems_to_have_a_gpu_in_its_own_mounts_alone(tmp_path: Path) -> None:
    """Everything is there for the command, whose status is told; outside nothing is, and nothing of it stays."""
    command = [sys.executable, "-m", "tests.shake.gpu_machine", "sh", "-c", SEEN]
    environment = {**os.environ, "TMPDIR": str(tmp_path)}
    mounts = Path("/proc/self/mounts").read_text()
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=False, timeout=100)
    assert (done.returncode, done.stdout) == (7, ""), done.stderr
    assert Path("/proc/self/mounts").read_text() == mounts
    assert list(tmp_path.iterdir()) == []
