"""One agent for one state directory."""

import errno
import fcntl
import os
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path

import anyio
import anyio.lowlevel
import pytest

from nodeagent.edge.host.errors import FileNotWritten, StateLocked
from nodeagent.edge.host.files.state_lock import StateLock
from tests.support.waiting import in_thread, wait_until

WAIT_SECONDS = 10.0
HOLDER = """
import sys, time
from pathlib import Path
from nodeagent.edge.host.files.state_lock import StateLock
lock = StateLock(Path(sys.argv[1]))
lock.acquire()
print("held", flush=True)
time.sleep(60)
"""


def test_second_agent_is_refused_by_name_of_the_first(tmp_path: Path) -> None:
    """Two agents at once: the second refuses, naming the first's pid; killed, the first lets go."""
    path = tmp_path / "state.lock"
    with held_elsewhere(path) as first:
        with pytest.raises(StateLocked, match=f"process {first.pid} holds it") as refusal:
            StateLock(path).acquire()
        assert refusal.value.holder_pid == first.pid
        first.send_signal(signal.SIGKILL)
        first.wait(10)
    with StateLock(path):
        assert path.read_text() == f"{os.getpid()} {os.uname().nodename}\n"


def test_lock_is_free_after_release_and_the_file_stays(tmp_path: Path) -> None:
    """The lock file is never removed, and names the newest owner alone."""
    path = tmp_path / "state.lock"
    path.write_text("123456789\nleft over\n")
    lock = StateLock(path)
    for _ in range(2):
        lock.acquire()
        assert path.read_text() == f"{os.getpid()} {os.uname().nodename}\n"
        lock.release()
    lock.release()
    assert path.exists()


def test_holder_without_a_pid_is_refused_all_the_same(tmp_path: Path) -> None:
    """Between lock and pid there is a moment; the refusal does without the name."""
    path = tmp_path / "state.lock"
    with StateLock(path):
        path.write_text("")
        with pytest.raises(StateLocked, match="another process holds it"):
            StateLock(path).acquire()


def test_lock_in_an_absent_directory_is_an_error(tmp_path: Path) -> None:
    """The error names the file and what to do."""
    with pytest.raises(FileNotWritten, match=r"absent/state.lock: create the lock file.*create the directory"):
        StateLock(tmp_path / "absent" / "state.lock").acquire()


def test_link_in_place_of_the_lock_is_refused(tmp_path: Path) -> None:
    """A link that somebody else put there is not followed and not written through."""
    (tmp_path / "victim").write_text("precious")
    (tmp_path / "state.lock").symlink_to("victim")
    with pytest.raises(FileNotWritten):
        StateLock(tmp_path / "state.lock").acquire()
    assert (tmp_path / "victim").read_text() == "precious"


async def test_a_wait_ends_when_the_lock_is_free(tmp_path: Path) -> None:
    """The waiter then holds the lock against everybody else, and lets go of it as after any other way."""
    path = tmp_path / "state.lock"
    lock = StateLock(path)
    with held_elsewhere(path) as first:
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(lock.acquire_when_free)
            await wait_until(find_waiters)
            first.kill()
    await in_thread(partial(check_locked, path))
    lock.release()
    await in_thread(partial(check_free, path))


async def test_a_cancelled_wait_takes_no_lock(tmp_path: Path) -> None:
    """Its thread lets go of the lock once it has the lock."""
    path = tmp_path / "state.lock"
    with held_elsewhere(path):
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(StateLock(path).acquire_when_free)
            await wait_until(find_waiters)
            tasks.cancel_scope.cancel()
    await wait_until(lambda: not find_waiters())
    await anyio.lowlevel.checkpoint()
    await in_thread(partial(check_free, path))


def test_a_wait_whose_loop_has_ended_takes_no_lock(tmp_path: Path) -> None:
    """As the wait of a standby that is told to stop."""
    path = tmp_path / "state.lock"

    async def give_up() -> None:
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(StateLock(path).acquire_when_free)
            await wait_until(find_waiters)
            tasks.cancel_scope.cancel()

    with held_elsewhere(path):
        anyio.run(give_up)
        (waiter,) = find_waiters()
    waiter.join(WAIT_SECONDS)
    check_free(path)


@pytest.mark.parametrize("blocks", [False, True])
async def test_a_file_system_without_locks_is_an_error(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, *, blocks: bool
) -> None:
    """At once and in a wait, with the file named, and no descriptor stays open."""

    def refuse(_descriptor: int, _operation: int) -> None:
        raise OSError(errno.ENOLCK, os.strerror(errno.ENOLCK))

    monkeypatch.setattr(fcntl, "flock", refuse)
    lock = StateLock(tmp_path / "state.lock")
    with pytest.raises(FileNotWritten, match=r"state\.lock: lock the lock file"):
        await (lock.acquire_when_free() if blocks else in_thread(lock.acquire))


@contextmanager
def held_elsewhere(path: Path) -> Iterator[subprocess.Popen[bytes]]:
    """Another process that holds the lock."""
    with subprocess.Popen([sys.executable, "-c", HOLDER, str(path)], stdout=subprocess.PIPE) as process:
        try:
            assert process.stdout is not None
            assert process.stdout.readline() == b"held\n"
            yield process
        finally:
            process.kill()


def check_free(path: Path) -> None:
    with StateLock(path):
        pass


def check_locked(path: Path) -> None:
    with pytest.raises(StateLocked):
        StateLock(path).acquire()


def find_waiters() -> list[threading.Thread]:
    """The threads that wait for a lock."""
    return [thread for thread in threading.enumerate() if thread.name == "state lock"]


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="this machine has no /dev/full")
def test_full_disk_lets_go_of_the_lock() -> None:
    """When the pid cannot be written nothing stays locked and no descriptor stays open."""
    with pytest.raises(FileNotWritten, match="write who holds it"):
        StateLock(Path("/dev/full")).acquire()
