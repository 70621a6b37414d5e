"""One agent for one state directory."""

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from nodeagent.edge.host.errors import FileNotWritten, StateLocked
from nodeagent.edge.host.files.state_lock import StateLock

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
    with subprocess.Popen([sys.executable, "-c", HOLDER, str(path)], stdout=subprocess.PIPE) as first:
        assert first.stdout is not None
        assert first.stdout.readline() == b"held\n"
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


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="this machine has no /dev/full")
def test_full_disk_lets_go_of_the_lock() -> None:
    """When the pid cannot be written nothing stays locked and no descriptor stays open."""
    with pytest.raises(FileNotWritten, match="write who holds it"):
        StateLock(Path("/dev/full")).acquire()
