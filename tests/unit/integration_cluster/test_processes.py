"""Processes are recognised, ended, and never confused with others."""

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from tests.integration.cluster.errors import CommandFailed, WaitTimedOut
from tests.integration.cluster.processes import (
    ProcessId,
    end,
    read_record,
    read_stat,
    run,
    spawn,
    wait_until,
    write_record,
)

STUBBORN = "import signal, sys; signal.signal(signal.SIGTERM, signal.SIG_IGN); print('set', flush=True); signal.pause()"


def test_a_started_process_is_found_by_its_record(tmp_path: Path) -> None:
    """The record names it as long as it lives, and its output is in the log."""
    spawned = spawn(("sh", "-c", "echo hello; exec sleep 1000"), tmp_path / "log", tmp_path / "record", os.environ)
    try:
        assert read_record(tmp_path / "record") == spawned
        wait_until("the output", lambda: None if (tmp_path / "log").read_text() else "empty", timeout_seconds=10)
        assert spawned.is_alive()
    finally:
        assert end((spawned,), signal.SIGKILL, 10) == ()
    assert not spawned.is_alive()


def test_a_recycled_number_is_another_process() -> None:
    """The same number with another start time is neither alive nor signalled: this test would not survive it."""
    stranger = ProcessId(os.getpid(), 1)
    assert not stranger.is_alive()
    stranger.send(signal.SIGKILL)
    assert end((stranger,), signal.SIGKILL, 1) == ()


def test_a_process_that_is_gone_can_be_ended(tmp_path: Path) -> None:
    """Signalling and reading a number that nobody has is no error."""
    child = subprocess.Popen(("true",))
    child.wait()
    ProcessId(child.pid, 1).send(signal.SIGTERM)
    assert read_stat(child.pid) is None
    assert read_record(tmp_path / "none") is None
    (tmp_path / "half").write_text("4711 (sh) S 1")
    assert read_record(tmp_path / "half") is None


def test_a_process_started_elsewhere_can_be_recorded(tmp_path: Path) -> None:
    """A record of our own child leads back to it."""
    write_record(os.getpid(), tmp_path / "record")
    assert read_record(tmp_path / "record") == ProcessId.of(os.getpid())


def test_a_started_process_is_nobodys_child(tmp_path: Path) -> None:
    """It does not die with who started it, and who started it need not wait for it."""
    spawned = spawn(("sleep", "1000"), tmp_path / "log", tmp_path / "record", os.environ)
    try:
        fields = read_stat(spawned.pid)
        assert fields is not None
        assert int(fields[1]) != os.getpid()
    finally:
        assert end((spawned,), signal.SIGKILL, 10) == ()


def test_a_process_that_refuses_to_end_is_returned(tmp_path: Path) -> None:
    """Who still lives at the deadline is known to the caller, who may then kill it."""
    command = (sys.executable, "-c", STUBBORN)
    spawned = spawn(command, tmp_path / "log", tmp_path / "record", os.environ)
    wait_until("its handler", lambda: None if (tmp_path / "log").read_text() else "no", timeout_seconds=30)
    assert end((spawned,), signal.SIGTERM, 0.1) == (spawned,)
    assert end((spawned,), signal.SIGKILL, 10) == ()


def test_a_failed_command_says_what_it_said() -> None:
    """Status and error output are in the message; a command without end is cut off."""
    with pytest.raises(CommandFailed, match=r"exited with 3: broken") as failure:
        run(("sh", "-c", "echo broken >&2; exit 3"), os.environ)
    assert failure.value.status == 3
    with pytest.raises(CommandFailed, match=r"no end after 0\.05 s"):
        run(("sleep", "1000"), os.environ, timeout_seconds=0.05)
    assert run(("cat",), os.environ, stdin="given") == "given"


def test_waiting_in_vain_tells_the_last_obstacle() -> None:
    """The message of a timeout is what the probe saw last."""
    with pytest.raises(WaitTimedOut, match="waited 0 s for rain; last seen: sunshine"):
        wait_until("rain", lambda: "sunshine", timeout_seconds=0)
