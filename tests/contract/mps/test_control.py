"""The control daemon from its start to its end."""

import os
import signal
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import anyio
import pytest

from nodeagent.core.children.worker_thread import WorkerThread
from nodeagent.edge.mps.host import FLOOD_LIMIT, HostMps, MpsHostSettings
from nodeagent.edge.mps.processes import list_processes
from nodeagent.model.mps import MpsLimits, MpsPlace
from nodeagent.rules.mps.log import find_news
from nodeagent.rules.mps.talk import LOOK, find_refusal, read_pids, render_defaults, render_quit
from tests.contract.mps.conftest import STAND_IN, Answer, Control, wait_end
from tests.support.gpus import gpu_uuid

NOBODY = ("setpriv", "--reuid", "65534", "--regid", "65534", "--clear-groups")
NO_DAEMON = Answer(1, ("Cannot find MPS control daemon process",))
SIZES = (1, 2, 100, 512, 1000, 1023, 1024, 1025, 1536, 2047, 2048, 20389, 20480, 40960, 81559, 81919, 81920)


def test_it_listens_when_its_start_has_returned(control: Control) -> None:
    """The daemon of its own directories, at once, with all threads and no server."""
    assert control.ask(*LOOK) == NO_DAEMON
    control.start()
    assert control.ask(*LOOK, "get_default_active_thread_percentage") == Answer(0, ("100.0",))
    assert {"control", "control_lock", "control_privileged", "log"} <= {one.name for one in control.pipes.iterdir()}


def test_a_driver_without_a_mode_for_several_users_starts_none(control: Control) -> None:
    """The program takes itself for a front end, and says so: the agent tells the claim by these words."""
    assert control.run("-d", "-M") == NO_DAEMON
    assert control.find() is None


def test_a_second_one_is_refused(control: Control) -> None:
    """While the first lives, and goes on."""
    pid = control.start()
    assert control.run("-d") == Answer(1, ("An instance of this daemon is already running",))
    assert control.find() == pid


@pytest.mark.parametrize("size", SIZES)
def test_a_memory_limit_is_told_as_the_daemon_counts(control: Control, size: int) -> None:
    """In M below 1 GiB, from there on in whole G, rounded down; and the agent takes that for what it has set."""
    control.start()
    gpu = gpu_uuid(0)
    limits = MpsLimits(thread_percentage=25, memory_mib={gpu: size})
    answer = control.ask(*render_defaults((gpu,), limits))
    told = f"{size}M" if size < 1024 else f"{size // 1024}G"
    assert answer == Answer(0, ("25.0", told, "25.0"))
    assert find_refusal((gpu,), limits, answer.lines) == ""


def test_every_size_is_taken_as_it_is_told(control: Control) -> None:
    """All sizes of 1 to 80 GiB that a share may come to, by one front end."""
    control.start()
    sizes = range(1000, 82_000, 271)
    commands = [
        f"{verb}_default_device_pinned_mem_limit 0{end}"
        for s in sizes
        for verb, end in (("set", f" {s}M"), ("get", ""))
    ]
    told = control.ask(*commands).lines
    gpu = gpu_uuid(0)
    assert len(told) == len(sizes)
    for size, one in zip(sizes, told, strict=True):
        assert find_refusal((gpu,), MpsLimits(memory_mib={gpu: size}), (one, "100.0")) == ""
        assert find_refusal((gpu,), MpsLimits(memory_mib={gpu: size + 1024}), (one, "100.0")) != ""


def test_limits_of_several_gpus_are_told_in_their_order(control: Control) -> None:
    """Where one has none, the daemon says nothing at all of it."""
    control.start()
    gpus = (gpu_uuid(0), gpu_uuid(1), gpu_uuid(2))
    limits = MpsLimits(thread_percentage=30, memory_mib={gpus[0]: 700, gpus[2]: 5000})
    answer = control.ask(*render_defaults(gpus, limits))
    assert answer.lines == ("30.0", "700M", "4G", "30.0")
    assert find_refusal(gpus, limits, answer.lines) == ""
    assert control.ask("get_default_device_pinned_mem_limit 1").lines == ()


def test_the_last_limits_count(control: Control) -> None:
    control.start()
    control.ask("set_default_device_pinned_mem_limit 0 30000M", "set_default_active_thread_percentage 50")
    said = control.ask("set_default_device_pinned_mem_limit 0 900M", "get_default_device_pinned_mem_limit 0")
    assert said.lines == ("900M",)
    assert control.ask("get_default_active_thread_percentage").lines == ("50.0",)


@pytest.mark.parametrize(
    ("command", "said"),
    [
        ("nonsense", 'Unknown command "nonsense"'),
        ("", 'Unknown command ""'),
        ("get_client_list 7", "Server 7 not found"),
        ("get_client_list", "Server 0 not found"),
        ("set_active_thread_percentage 7 50", "Server 7 not found"),
        ("get_active_thread_percentage 7", "Server 7 not found"),
        ("set_device_pinned_mem_limit 7 0 5G", "Server 7 not found"),
        ("get_device_pinned_mem_limit 7 0", "Server 7 not found"),
        ("set_default_active_thread_percentage 200", "100.0"),
        ("set_default_active_thread_percentage 0", "100.0"),
        ("set_default_active_thread_percentage", "100.0"),
        ("set_default_active_thread_percentage 33.333", "33.3"),
        ("set_default_device_pinned_mem_limit 0 much", None),
        ("set_default_device_pinned_mem_limit 0", None),
        ("get_default_device_pinned_mem_limit 0", None),
    ],
)
def test_what_it_says_to_a_command(control: Control, command: str, said: str | None) -> None:
    """The front end ends well whatever was said, and the daemon goes on."""
    control.start()
    assert control.ask(command) == Answer(0, () if said is None else (said,))
    assert control.ask("get_default_active_thread_percentage").status == 0


def test_each_question_leaves_four_lines_in_its_log(control: Control) -> None:
    """A line more for each further command of the same front end, and one for the answer; none of them is news."""
    control.start()
    begun = control.wait_log(2)
    assert begun[0] == f"Starting control daemon using socket {control.pipes}/control"
    control.ask("get_server_list")
    question = ["Accepting connection...", "NEW UI", "Cmd:get_server_list", "UI closed"]
    assert control.wait_log(6)[2:] == question
    control.ask("get_server_list", "get_default_active_thread_percentage")
    further = [*question[:3], "Cmd:get_default_active_thread_percentage", "100.0", "UI closed"]
    assert control.wait_log(12)[6:] == further
    control.ask("set_default_device_pinned_mem_limit 0 2G", "get_default_device_pinned_mem_limit 1")
    commands = ["Cmd:set_default_device_pinned_mem_limit 0 2G", "Cmd:get_default_device_pinned_mem_limit 1"]
    absent = "No default pinned memory limit set for the device!"
    assert control.wait_log(18)[12:] == [*question[:2], *commands, absent, "UI closed"]
    lines = (control.logs / "control.log").read_text().splitlines()
    news = [one.partition("] ")[2] for one in find_news(lines, ())]
    assert news == [*begun, commands[0]], "who may set limits is told"
    assert find_news(lines[2:], ("set_default_device_pinned_mem_limit 0 2G",)) == ()


def test_it_serves_one_front_end_at_a_time(control: Control) -> None:
    """Another one is turned away without an answer, whatever its status; it may come when the first has ended."""
    control.start()
    with control.open_front_end() as first:
        assert first.stdin is not None
        first.stdin.write("get_default_active_thread_percentage\n")
        first.stdin.flush()
        assert control.wait_log(6)[-1] == "100.0"
        turned_away = control.ask("get_default_active_thread_percentage")
        assert turned_away.lines in ((), ("Cannot send command to MPS control daemon process",))
        first.stdin.close()
        assert first.wait(20) == 0
    assert control.ask("get_default_active_thread_percentage") == Answer(0, ("100.0",))


def test_its_log_may_be_cut_while_it_writes(control: Control) -> None:
    """The daemon appends: what comes after a cut begins at the beginning, without a gap."""
    control.start()
    control.ask("get_server_list")
    control.wait_log(6)
    os.truncate(control.logs / "control.log", 0)
    control.ask("get_server_list")
    assert control.wait_log(4) == ["Accepting connection...", "NEW UI", "Cmd:get_server_list", "UI closed"]
    assert b"\0" not in (control.logs / "control.log").read_bytes()


@contextmanager
def flooding(control: Control) -> Iterator[None]:
    """One front end that asks without an end."""
    words = ["sh", "-c", 'yes get_default_active_thread_percentage | "$0" > /dev/null', str(control.program)]
    with subprocess.Popen(words, env={**os.environ, **control.environment}, start_new_session=True) as asking:
        try:
            yield
        finally:
            os.killpg(asking.pid, signal.SIGKILL)


def test_a_log_that_somebody_keeps_filling_is_cut_all_the_same(control: Control, worker: WorkerThread) -> None:
    """What looks leave of it stays small, and the daemon goes on."""
    control.start()
    host = HostMps(MpsHostSettings(find_root=lambda: Path("/"), program=control.program), worker)
    place = MpsPlace(root=control.logs.parent.parent, name=control.logs.parent.name, has_own_memory=False)
    log = control.logs / "control.log"
    anyio.run(host.read_log, place)
    with flooding(control):
        cut = 0
        while cut < 3:
            before = log.stat().st_size
            anyio.run(host.read_log, place)
            cut += log.stat().st_size < before
            assert log.stat().st_size < 2 * FLOOD_LIMIT
    assert b"\0" not in log.read_bytes()
    assert control.find() is not None


def test_it_ends_when_it_is_told_to(control: Control) -> None:
    """With its process file, if it had one; its sockets stay, and do not hinder the next one."""
    pid = control.start()
    control.ask(render_quit(5))
    wait_end(pid)
    assert control.find() is None
    assert control.ask(*LOOK) == NO_DAEMON
    assert sorted(one.name for one in control.pipes.iterdir()) == ["control", "control_lock", "control_privileged"]
    assert control.start() != pid


@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGTERM])
def test_one_that_was_killed_makes_way_for_the_next(control: Control, number: signal.Signals) -> None:
    """Whatever files it has left; its limits are gone with it."""
    pid = control.start()
    control.ask("set_default_active_thread_percentage 20")
    os.kill(pid, number)
    wait_end(pid)
    assert {"control", "control_lock"} <= {one.name for one in control.pipes.iterdir()}
    assert control.ask(*LOOK) == NO_DAEMON
    assert control.start() != pid
    assert control.ask("get_default_active_thread_percentage").lines == ("100.0",)


def test_other_users_may_ask_and_not_end_it(control: Control, short_dir: Path) -> None:
    """A tenant's process is one of them."""
    short_dir.chmod(0o755)
    pid = control.start()
    assert control.ask(*LOOK, wrapper=NOBODY) == Answer(0, ())
    said = control.ask(render_quit(0), wrapper=NOBODY).lines
    assert said == ("Not enough privilege to execute quit command",)
    assert control.find() == pid


def test_who_else_may_change_limits(control: Control, short_dir: Path) -> None:
    """With driver 535 every user who reaches its pipes, so that limits have to be looked at again."""
    short_dir.chmod(0o755)
    control.start()
    said = control.ask("set_default_active_thread_percentage 60", wrapper=NOBODY)
    left = control.ask("get_default_active_thread_percentage").lines
    if control.driver == "535":
        assert (said.lines, left) == (("60.0",), ("60.0",))
    else:
        assert said.lines[0].startswith("Insufficient privileges for UID 65534.")
        assert left == ("100.0",)


def test_directories_that_are_missing_are_made(control: Control) -> None:
    control.pipes.rmdir()
    control.logs.rmdir()
    control.start()
    assert control.pipes.is_dir()
    assert control.logs.is_dir()


def test_a_pipe_directory_with_wrong_rights_is_named(control: Control, short_dir: Path) -> None:
    """A file in its place, and one in which it may not write."""
    short_dir.chmod(0o755)
    refused = f"Cannot access CUDA_MPS_PIPE_DIRECTORY={control.pipes}"
    answer = control.run("-d", wrapper=NOBODY)
    assert (answer.status, refused in answer.lines) == (1, True)
    control.pipes.rmdir()
    control.pipes.touch()
    assert control.run("-d") == Answer(1, (refused,))
    assert control.find() is None


def test_a_pipe_directory_whose_name_is_too_long_is_refused(control: Control, short_dir: Path) -> None:
    """A socket's name has at most 107 bytes."""
    control.pipes = short_dir / ("x" * 110)
    control.pipes.mkdir()
    assert control.run("-d").status == 1
    assert control.find() is None


def test_a_server_that_cannot_be_started_is_none(control: Control) -> None:
    """NVIDIA's own end at once without a GPU, which the log says; those of the stand-in need none."""
    pid = control.start()
    assert control.ask("start_server -uid 0") == Answer(0, ())
    if control.driver == STAND_IN:
        (server,) = read_pids(control.ask(*LOOK).lines)
        assert list_processes(pid, ()) == {server}
        assert control.ask(f"get_client_list {server}") == Answer(0, ())
    else:
        lines = control.wait_log(8)
        assert any(line.startswith("Starting new server ") and line.endswith(" for user 0") for line in lines)
        assert any(line.endswith(" exited with status 1") for line in lines)
        assert read_pids(control.ask(*LOOK).lines) == ()
        assert list_processes(pid, ()) == frozenset()
