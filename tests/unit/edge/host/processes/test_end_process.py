"""Ending a process of a pod, and nobody else's: on real processes, with the control groups of a made-up /proc."""

import signal
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import TypeVar

import anyio
import anyio.lowlevel
import pytest

from nodeagent.core.children.worker_thread import WorkerThread
from nodeagent.edge.host.errors import HostStuck, ProcessNotEnded
from nodeagent.edge.host.processes.end_process import HostProcessEnding
from tests.support.threads import StuckThread

T = TypeVar("T")


UID = "0f3c2b1a-1111-2222-3333-444455556666"
OTHER = "1f3c2b1a-1111-2222-3333-444455556666"


@pytest.fixture
def sleeper() -> Iterator[subprocess.Popen[bytes]]:
    with subprocess.Popen(["sleep", "600"]) as process:
        yield process
        process.kill()


def end(proc: Path, pid: int, uid: str) -> bool:
    async def ask() -> bool:
        worker = WorkerThread("test")
        try:
            return await HostProcessEnding(worker, proc).end(pid, uid)
        finally:
            worker.close()

    return anyio.run(ask)


def put(proc: Path, pid: int, uid: str) -> None:
    (proc / str(pid)).mkdir(exist_ok=True)
    (proc / str(pid) / "cgroup").write_text(f"0::/kubepods/pod{uid}/{'c' * 64}\n")


@pytest.mark.may_block("processes are waited for outside of an event loop")
def test_only_the_pods_own_process_is_ended(tmp_path: Path, sleeper: subprocess.Popen[bytes]) -> None:
    """One that is another pod's or the host's by now is left alone, and so is one that is gone."""
    put(tmp_path, sleeper.pid, OTHER)
    assert not end(tmp_path, sleeper.pid, UID)
    assert not end(tmp_path, sleeper.pid, "")
    assert sleeper.poll() is None
    put(tmp_path, sleeper.pid, UID)
    assert end(tmp_path, sleeper.pid, UID)
    assert sleeper.wait(10) == -signal.SIGKILL
    assert not end(tmp_path, sleeper.pid, UID)


@pytest.mark.may_block("processes are waited for outside of an event loop")
@pytest.mark.parametrize("call", ["os.pidfd_open", "signal.pidfd_send_signal"])
def test_what_may_not_be_ended_is_told_with_a_remedy(
    tmp_path: Path, sleeper: subprocess.Popen[bytes], monkeypatch: pytest.MonkeyPatch, call: str
) -> None:
    def refuse(*_: object) -> int:
        raise PermissionError(1, "Operation not permitted")

    put(tmp_path, sleeper.pid, UID)
    with monkeypatch.context() as patched:
        patched.setattr(call, refuse)
        with pytest.raises(ProcessNotEnded, match="CAP_KILL"):
            end(tmp_path, sleeper.pid, UID)


@pytest.mark.may_block("processes are waited for outside of an event loop")
def test_one_that_ends_by_itself_meanwhile_is_none_of_ours(
    tmp_path: Path, sleeper: subprocess.Popen[bytes], monkeypatch: pytest.MonkeyPatch
) -> None:
    def miss(*_: object) -> None:
        raise ProcessLookupError(3, "No such process")

    put(tmp_path, sleeper.pid, UID)
    with monkeypatch.context() as patched:
        patched.setattr("signal.pidfd_send_signal", miss)
        assert not end(tmp_path, sleeper.pid, UID)


async def test_a_proc_that_hangs_is_told(tmp_path: Path) -> None:
    """Nobody is ended, and nobody waits for it."""
    with pytest.raises(HostStuck, match="no answer about"):
        await HostProcessEnding(StuckThread("test"), tmp_path).end(1, UID)
