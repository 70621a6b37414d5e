import ctypes
import errno
import os
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace

import pytest

from nodeagent.core.children.child_setup import announce_step, die_with_parent
from nodeagent.core.children.frames import PARENT_VARIABLE


class Exited(BaseException):
    """Stands for the end of the process."""


@pytest.fixture
def calls(monkeypatch: pytest.MonkeyPatch) -> list[tuple[int, ...]]:
    """The prctl calls made, in a process whose death signal must not really be set."""
    made: list[tuple[int, ...]] = []

    def prctl(*arguments: int) -> int:
        made.append(arguments)
        return 0

    def exit_process(status: int) -> None:
        raise Exited(status)

    monkeypatch.setattr(ctypes, "CDLL", lambda *_args, **_kwargs: SimpleNamespace(prctl=prctl))
    monkeypatch.setattr(os, "_exit", exit_process)
    return made


def test_death_signal_is_asked_for(calls: list[tuple[int, ...]], monkeypatch: pytest.MonkeyPatch) -> None:
    """With the parent alive, or unknown, the child asks for SIGKILL at its parent's death and goes on."""
    die_with_parent()
    monkeypatch.setenv(PARENT_VARIABLE, str(os.getppid()))
    die_with_parent()
    assert calls == [(1, 9, 0, 0, 0)] * 2


def test_parent_that_died_before_is_noticed(calls: list[tuple[int, ...]], monkeypatch: pytest.MonkeyPatch) -> None:
    """A child whose parent is another process by now ends at once."""
    monkeypatch.setenv(PARENT_VARIABLE, "1" if os.getppid() != 1 else "2")
    with pytest.raises(Exited):
        die_with_parent()


def test_refused_death_signal_is_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    """A child that could outlive the agent does not start its work."""
    monkeypatch.setattr(ctypes, "CDLL", lambda *_args, **_kwargs: SimpleNamespace(prctl=lambda *_a: -1))
    monkeypatch.setattr(ctypes, "get_errno", lambda: errno.EPERM)
    with pytest.raises(PermissionError, match=r"prctl\(PR_SET_PDEATHSIG\) failed"):
        die_with_parent()


def test_stray_prints_stay_out_of_the_answers() -> None:
    """What a library prints goes to the log's pipe; answers go where they belong."""
    code = (
        "import os; from nodeagent.core.children.child_setup import claim_answers, die_with_parent\n"
        "die_with_parent(); answers = claim_answers()\n"
        "os.write(1, b'stray'); os.write(answers, b'answer')"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, check=True)
    assert (done.stdout, done.stderr) == (b"answer", b"stray")


def test_a_step_is_the_name_of_the_process() -> None:
    """People see it in `ps`, the parent in `/proc`; the kernel keeps fifteen bytes."""
    thread = Path("/proc/thread-self/comm")
    before = thread.read_text().rstrip("\n")
    try:
        announce_step("nvml GPU 3 of a long name")
        assert thread.read_text() == "nvml GPU 3 of a\n"
    finally:
        announce_step(before)
