"""Restarts by real processes, and what the kernel and a service manager tell of a start."""

import os
import subprocess
import sys
from pathlib import Path

import anyio
import pytest

from nodeagent.edge.container_runtime.errors import RestartFailed
from nodeagent.edge.container_runtime.starts import list_daemons, measure_start, parse_start_seconds, restart_runtime
from nodeagent.model.runtime import DaemonProcess

NEVER = "InactiveExitTimestampMonotonic=0\nActiveEnterTimestampMonotonic=0\n"
BUSY = "import sys\nwhile True:\n    sys.stdout.write('.' * 4096)\n    sys.stdout.flush()\n"


async def test_a_restart_that_succeeds_says_nothing() -> None:
    """Whatever the command prints."""
    await restart_runtime(("sh", "-c", "echo done"))


@pytest.mark.parametrize(
    ("command", "said"),
    [
        (("sh", "-c", "echo no such unit >&2; exit 5"), "no such unit"),
        (("sh", "-c", "exit 5"), "exit status 5"),
        (("/nowhere/systemctl", "restart"), "/nowhere/systemctl: No such file or directory"),
    ],
)
async def test_a_restart_that_fails_is_told_in_the_commands_own_words(command: tuple[str, ...], said: str) -> None:
    with pytest.raises(RestartFailed, match=f"failed: {said}:"):
        await restart_runtime(command)


async def test_a_command_that_hangs_ends_with_whoever_waits_for_it(tmp_path: Path) -> None:
    """With all that it has started; nothing is left to be reaped."""
    held = tmp_path / "held"
    os.mkfifo(held)
    script = f"exec >{held}; echo $$; sleep 1000 & wait"
    async with await anyio.open_file(os.open(held, os.O_RDWR), "rb", buffering=0) as own:
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(restart_runtime, ("sh", "-c", script))
            pid = int(await own.read(64))
            reader = os.open(held, os.O_RDONLY | os.O_NONBLOCK)
            tasks.cancel_scope.cancel()
    with open(reader, "rb") as rest:  # noqa: ASYNC230, PTH123  # it is at its end when nobody writes there any more
        os.set_blocking(reader, True)
        assert rest.read() == b""
    assert str(pid) not in os.listdir("/proc")  # noqa: PTH208  # a directory of the kernel's


def test_a_daemons_work_is_seen() -> None:
    """Its age, its time of a processor, and what it writes, as the kernel tells of this very process."""
    with subprocess.Popen([sys.executable, "-c", BUSY], stdout=subprocess.PIPE) as process:
        assert process.stdout is not None
        try:
            process.stdout.read(4096)
            name = Path(f"/proc/{process.pid}/comm").read_text().strip()
            before = after = find_daemon(name, process.pid)
            while after.cpu_seconds == before.cpu_seconds:
                process.stdout.read(1 << 20)
                after = find_daemon(name, process.pid)
        finally:
            process.kill()
    assert 0 <= before.age_seconds < after.age_seconds


def find_daemon(name: str, pid: int) -> DaemonProcess:
    return next(each for each in list_daemons(name) if each.pid == pid)


def test_what_the_kernel_no_longer_tells_is_passed_over(tmp_path: Path) -> None:
    """A process may end between two looks, and its transfers may be hidden."""
    for number, stat in ((7, b""), (8, b"8 (a) b) S" + b" 1" * 30), (9, b"9 (x) S" + b" 1" * 30)):
        (tmp_path / str(number)).mkdir()
        (tmp_path / str(number) / "comm").write_text("containerd\n" if number != 9 else "other\n")
        (tmp_path / str(number) / "stat").write_bytes(stat)
    (tmp_path / "8/io").write_text("rchar: 5\nread_bytes: 4096\nwrite_bytes: 1\ncancelled_write_bytes: 9\n")
    (daemon,) = list_daemons("containerd", tmp_path)
    assert (daemon.pid, daemon.moved_bytes, daemon.cpu_seconds) == (8, 4097, 2 / os.sysconf("SC_CLK_TCK"))
    (tmp_path / "8/io").unlink()
    assert list_daemons("containerd", tmp_path)[0].moved_bytes == 0


@pytest.mark.parametrize(
    ("text", "seconds"),
    [
        ("InactiveExitTimestampMonotonic=1000000\nActiveEnterTimestampMonotonic=46500000\n", 45.5),
        (
            f"{NEVER}\nActiveEnterTimestampMonotonic=3000000\nInactiveExitTimestampMonotonic=1000000\n",
            2.0,
        ),
        ("InactiveExitTimestampMonotonic=5\nActiveEnterTimestampMonotonic=4\n", 0.0),
        ("InactiveExitTimestampMonotonic=\nActiveEnterTimestampMonotonic=[not set]\n", 0.0),
        ("", 0.0),
    ],
    ids=["one unit", "the other of two", "it starts just now", "not set", "nothing"],
)
def test_the_last_start_is_read_from_the_service_manager(text: str, seconds: float) -> None:
    """In its own properties; `test_restarts.py` asks a real one."""
    assert parse_start_seconds(text) == seconds


@pytest.mark.parametrize("command", [("snap", "restart", "x"), ("systemctl", "restart", "no-such-unit-here.service")])
def test_a_start_that_nobody_knows_of_is_zero(command: tuple[str, ...]) -> None:
    """Another manager, or none that answers."""
    assert measure_start(command, 5.0) == 0.0


def test_a_service_manager_that_hangs_is_not_waited_for(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    program = tmp_path / "systemctl"
    program.write_text("#!/bin/sh\nexec sleep 1000\n")
    program.chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}:{os.environ['PATH']}")
    assert measure_start(("systemctl", "restart", "x.service"), 0.05) == 0.0
    monkeypatch.setenv("PATH", "/nowhere")
    assert measure_start(("systemctl", "restart", "x.service"), 0.05) == 0.0
