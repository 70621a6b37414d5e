"""Whatever ends a run of scenarios, nothing of it stays: tried on a run whose cluster is two sleeping processes."""

import os
import select
import signal
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path

import pytest

from tests.integration.cluster.layout import CHECKOUT, ROOT_VARIABLE, Layout

pytestmark = pytest.mark.slow
LIMIT_SECONDS = 60.0
RUN = """
import os, signal, subprocess, sys, time
from pathlib import Path
from tests.integration.cluster.layout import Layout
from tests.integration.cluster.processes import spawn

layout, told = Layout.of_checkout(), Path(sys.argv[1])
os.mkfifo(told / "go")
layout.records.mkdir(parents=True)
layout.logs.mkdir()
etcd = spawn(("sleep", "1000"), layout.log("etcd"), layout.records / "etcd", dict(os.environ))
stubborn = subprocess.Popen(["sh", "-c", "trap '' TERM INT; exec sleep 1000"], start_new_session=True)
(told / "new").write_text(f"{os.getpid()} {os.getppid()} {etcd.pid} {stubborn.pid}")
(told / "new").rename(told / "pids")
try:
    (told / "go").read_text()
    PAUSE
except KeyboardInterrupt:
    (told / "interrupted").touch()
    sys.exit(2)
"""
WAITS = "sys.exit(0)"
"""As pytest, where it is never let go on: it cleans up when it is interrupted, and then ends with 2."""


class Run:
    """A run under the reaper, and every process that belongs to it."""

    def __init__(self, front: subprocess.Popen[str], pids: Sequence[int], go: Path) -> None:
        self.front = front
        self._go = go
        self.command, self.reaper, *_ = self.pids = pids

    def go_on(self) -> None:
        """Let the command come to its end by itself."""
        self._go.write_text("")

    def wait_gone(self, handles: Sequence[int]) -> None:
        """Return when every process has ended: the kernel says so."""
        limit, left = time.monotonic() + LIMIT_SECONDS, set(handles)
        while left:
            ready, _, _ = select.select(left, [], [], limit - time.monotonic())
            assert ready, "something stays"
            left -= set(ready)


def end(handle: int) -> None:
    """Kill a process that a scenario has left, where that is what it is about."""
    with suppress(ProcessLookupError):
        signal.pidfd_send_signal(handle, signal.SIGKILL)


@contextmanager
def running(
    directory: Path, root: Path, pause: str, *arguments: str, starter: Sequence[str] = ()
) -> Iterator[tuple[Run, list[int]]]:
    script = directory / "run.py"
    script.write_text(RUN.replace("PAUSE", pause))
    command = (
        sys.executable,
        "-m",
        "tests.integration.reaper",
        sys.executable,
        str(script),
        str(directory),
        *arguments,
    )
    environment = {**os.environ, ROOT_VARIABLE: str(root), "PYTHONPATH": str(CHECKOUT)}
    told = directory / "pids"
    with ExitStack() as stack:
        front = stack.enter_context(
            subprocess.Popen(command, cwd=CHECKOUT, env=environment, text=True, stderr=subprocess.PIPE)
        )
        stack.callback(front.kill)
        limit = time.monotonic() + LIMIT_SECONDS
        while not told.exists():
            assert front.poll() is None
            assert time.monotonic() < limit
            time.sleep(0.02)
        pids = [int(word) for word in told.read_text().split()]
        handles = [os.pidfd_open(pid) for pid in pids]
        for handle in handles:
            stack.callback(os.close, handle)
            stack.callback(end, handle)
        yield Run(front, pids, directory / "go"), handles


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT, signal.SIGHUP, signal.SIGKILL])
def test_whatever_ends_the_front_ends_all(tmp_path: Path, short_dir: Path, number: signal.Signals) -> None:
    """The command is interrupted and may clean up; what it leaves is killed, and the cluster's files are removed."""
    root = short_dir / "c"
    with running(tmp_path, root, WAITS) as (run, handles):
        run.front.send_signal(number)
        run.wait_gone(handles)
        status = run.front.wait(LIMIT_SECONDS)
    assert (tmp_path / "interrupted").exists()
    assert status == (-signal.SIGKILL if number == signal.SIGKILL else 2)
    assert not root.exists()
    assert not Layout(root).lock_file.exists()


def test_a_command_that_is_killed_leaves_nothing(tmp_path: Path, short_dir: Path) -> None:
    """Without a chance to clean up; make hears that it was killed."""
    root = short_dir / "c"
    with running(tmp_path, root, WAITS) as (run, handles):
        os.kill(run.command, signal.SIGKILL)
        run.wait_gone(handles)
        assert run.front.wait(LIMIT_SECONDS) == 128 + signal.SIGKILL
        assert run.front.stderr is not None
        assert "ended what the run had left: " in run.front.stderr.read()
    assert not root.exists()


def test_a_command_whose_reaper_is_killed_is_interrupted(tmp_path: Path, short_dir: Path) -> None:
    with running(tmp_path, short_dir / "c", WAITS) as (run, handles):
        os.kill(run.reaper, signal.SIGKILL)
        run.wait_gone(handles[:2])
        assert run.front.wait(LIMIT_SECONDS) == 128 + signal.SIGKILL
        for pid in run.pids[2:]:
            os.kill(pid, signal.SIGKILL)
        run.wait_gone(handles)
    assert (tmp_path / "interrupted").exists()


def test_whoever_started_the_front_may_be_killed(tmp_path: Path, short_dir: Path) -> None:
    """As make, or the shell in its place: the front hears of it from the kernel."""
    root = short_dir / "c"
    with running(tmp_path, root, WAITS, starter=("sh", "-c", '"$@"; true', "sh")) as (run, handles):
        run.front.send_signal(signal.SIGKILL)
        run.wait_gone(handles)
        assert run.front.stderr is not None
        run.front.stderr.read()  # all that could write there has ended
    assert (tmp_path / "interrupted").exists()
    assert not root.exists()


def test_a_command_that_ends_by_itself_leaves_nothing(tmp_path: Path, short_dir: Path) -> None:
    root = short_dir / "c"
    with running(tmp_path, root, "sys.exit(3)") as (run, handles):
        run.go_on()
        run.wait_gone(handles)
        assert run.front.wait(LIMIT_SECONDS) == 3
    assert not root.exists()


def test_what_is_to_stay_stays(tmp_path: Path, short_dir: Path) -> None:
    """The cluster that the next run is to have."""
    root = short_dir / "c"
    with running(tmp_path, root, "sys.exit(3)", "--reuse-cluster") as (run, handles):
        run.go_on()
        assert run.front.wait(LIMIT_SECONDS) == 3
        assert root.exists()
        for pid in run.pids[2:]:
            os.kill(pid, signal.SIGKILL)
        run.wait_gone(handles)
