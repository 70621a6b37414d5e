"""The edge by itself: a driver root of its own, what cannot be started, and what is taken away."""

import os
import socket
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import IO, Any, Self

import anyio
import pytest

from nodeagent.core.children.worker_thread import WorkerThread
from nodeagent.edge.mps import host as host_module
from nodeagent.edge.mps.host import FLOOD_LIMIT, HostMps, MpsHostSettings
from nodeagent.edge.mps.run import run
from nodeagent.model.errors import MpsRefused, MpsSilent
from nodeagent.model.mps import MARKER, MpsPlace
from tests.fakes.mps import NAME, FakeMps


@pytest.fixture
def worker() -> Iterator[WorkerThread]:
    worker = WorkerThread("files of a test")
    yield worker
    worker.close()


def host_of(root: Path, worker: WorkerThread, program: Path | None = None) -> HostMps:
    return HostMps(MpsHostSettings(find_root=lambda: root, program=program, start_timeout_seconds=5.0), worker)


async def test_a_driver_with_a_root_of_its_own_sees_pipes_and_memory(short_dir: Path, worker: WorkerThread) -> None:
    """Its program runs with that root, and finds there what containers are given."""
    root = short_dir / "driver"
    fake = FakeMps(short_dir / "elsewhere")
    (root / "usr/bin").mkdir(parents=True)
    (root / "dev/shm").mkdir(parents=True)
    fake.install_client(root / "usr/bin" / NAME)
    host, place = host_of(root, worker), MpsPlace(root=short_dir / "mps", name="x", has_own_memory=True)
    place.pipes.mkdir(parents=True)
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as listening:
        listening.bind(str(place.pipes / "control"))
        listening.listen()
        listening.setblocking(False)

        async def cut_off() -> None:
            await anyio.wait_readable(listening)
            connection = listening.accept()[0]
            await anyio.wait_readable(connection)
            connection.close()

        for attempt, error in ((lambda: host.start(place, ()), MpsRefused), (lambda: host.ask(place, ()), MpsSilent)):
            async with anyio.create_task_group() as tasks:
                tasks.start_soon(cut_off)
                with pytest.raises(error, match="cut off"):
                    await attempt()
    assert list((root / "dev/shm").iterdir()) == [], "mounted for the program alone"


async def test_a_daemon_serves_several_users_where_the_driver_has_the_mode(
    short_dir: Path, worker: WorkerThread
) -> None:
    """Without the mode the refusal tells which drivers lack it, and only then."""
    fake = FakeMps(short_dir / "driver")
    host = host_of(Path("/"), worker, fake.program)
    place = MpsPlace(root=short_dir / "mps", name="x", has_own_memory=False)
    with pytest.raises(MpsRefused, match="no multi-user mode, as those of drivers 535 and 550: leave `multiUser` out"):
        await host.start(place, (), multi_user=True)
    fake.behave("multi-user")
    pid = await host.start(place, (), multi_user=True)
    with pytest.raises(MpsRefused, match=r"already running$"):
        await host.start(place, (), multi_user=True)
    await host.kill(pid)
    await host.wait_end(pid)


async def test_what_is_not_there_is_named(short_dir: Path, worker: WorkerThread) -> None:
    """A driver without it, and a program that cannot be run."""
    place = MpsPlace(root=short_dir / "mps", name="x", has_own_memory=False)
    with pytest.raises(MpsRefused, match=f"there is no {NAME} below {short_dir}"):
        await host_of(short_dir, worker).start(place, ())
    with pytest.raises(MpsSilent, match="there is no"):
        await host_of(short_dir, worker).ask(place, ())
    with pytest.raises(MpsRefused, match="cannot start"):
        await host_of(Path("/"), worker, short_dir / "missing").start(place, ())
    (short_dir / "occupied").touch()
    occupied = MpsPlace(root=short_dir / "occupied", name="x", has_own_memory=False)
    with pytest.raises(MpsRefused, match="cannot make the directories"):
        await host_of(Path("/"), worker, short_dir / "missing").start(occupied, ())


async def test_the_mark_is_made_before_all_else(
    short_dir: Path, worker: WorkerThread, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whoever was killed while a daemon was begun has left nothing that is not known as the agent's."""
    place = MpsPlace(root=short_dir / "mps", name="x", has_own_memory=False)
    make, seen = Path.mkdir, list[bool]()

    def watch(path: Path, *words: Any, **named: Any) -> None:
        seen.extend([(place.root / MARKER).exists()] if path.is_relative_to(place.directory) else [])
        make(path, *words, **named)

    monkeypatch.setattr(Path, "mkdir", watch)
    with pytest.raises(MpsRefused, match="cannot start"):
        await host_of(Path("/"), worker, short_dir / "missing").start(place, ())
    assert seen
    assert all(seen)


async def test_directories_of_others_stay(short_dir: Path, worker: WorkerThread) -> None:
    """The last daemon takes the common one with it, if nothing else is in it."""
    fake = FakeMps(short_dir / "driver")
    host = host_of(Path("/"), worker, fake.program)
    places = [MpsPlace(root=short_dir / "mps", name=name, has_own_memory=True) for name in ("nvidia.com/gpu", "b")]
    pids = [await host.start(place, ()) for place in places]
    for place, pid in zip(places, pids, strict=True):
        await host.kill(pid)
        await host.wait_end(pid)
        assert await host.find(place) is None
        await host.remove(place)
        assert not place.directory.exists()
    assert not (short_dir / "mps").exists()
    await host.remove(places[0])
    await host.kill(pids[0])


async def test_a_directory_that_is_a_pods_mount_is_emptied(
    short_dir: Path, worker: WorkerThread, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It cannot be removed from within, and what is in it is ours."""
    place = MpsPlace(root=short_dir / "mps", name="a", has_own_memory=True)
    place.pipes.mkdir(parents=True)
    place.shared_memory.mkdir()
    (place.root / MARKER).touch()
    monkeypatch.setattr(Path, "is_mount", lambda path: path == place.root)
    for _ in range(2):
        await host_of(Path("/"), worker).remove(place)
        assert list(place.root.iterdir()) == []


@pytest.fixture
def stand_in(short_dir: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """What is asked of the program that mounts, a line each; while there is a file `refuse` it will not."""
    asked, program = short_dir / "asked", short_dir / "memory"
    refusal = f'[ -e {short_dir}/refuse ] && echo "not allowed" && exit 1'
    program.write_text(f'#!/bin/sh\n{refusal}\necho "$@" >> {asked}\n')
    program.chmod(0o755)
    monkeypatch.setattr(host_module, "_MEMORY", (str(program),))
    return asked


def list_asked(asked: Path) -> list[str]:
    return asked.read_text().splitlines() if asked.exists() else []


async def test_shared_memory_has_a_size_of_its_own(
    short_dir: Path, worker: WorkerThread, stand_in: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Mounted before the first daemon, never over what one has already, and taken away after the last."""
    fake, memory = FakeMps(short_dir / "driver"), short_dir / "mps/shm"
    settings = MpsHostSettings(find_root=lambda: Path("/"), program=fake.program, memory_bytes=1 << 20)
    host = HostMps(settings, worker)
    places = [MpsPlace(root=short_dir / "mps", name=name, has_own_memory=True) for name in "ab"]
    pids = [await host.start(place, ()) for place in places]
    assert list_asked(stand_in) == [f"mount {memory} {1 << 20}"]
    monkeypatch.setattr(Path, "is_mount", lambda path: path == memory)
    for place, pid in zip(places, pids, strict=True):
        await host.kill(pid)
        await host.wait_end(pid)
        await host.remove(place)
    assert list_asked(stand_in)[1:] == [f"unmount {memory}"]
    assert not memory.exists()


async def test_where_it_may_not_be_mounted_it_is_a_directory(
    short_dir: Path, worker: WorkerThread, stand_in: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A daemon starts all the same; what cannot be unmounted is said."""
    (short_dir / "refuse").touch()
    fake = FakeMps(short_dir / "driver")
    settings = MpsHostSettings(find_root=lambda: Path("/"), program=fake.program, memory_bytes=1 << 20)
    host, place = HostMps(settings, worker), MpsPlace(root=short_dir / "mps", name="a", has_own_memory=True)
    pid = await host.start(place, ())
    assert place.shared_memory.is_dir()
    await host.kill(pid)
    await host.wait_end(pid)
    monkeypatch.setattr(Path, "is_mount", lambda path: path == place.shared_memory)
    with pytest.raises(MpsRefused, match="not allowed"):
        await host.remove(place)
    monkeypatch.setattr(host_module, "_MEMORY", (str(short_dir / "missing"),))
    with pytest.raises(MpsRefused, match="cannot start"):
        await host.remove(place)
    monkeypatch.undo()
    await host.remove(place)
    assert not place.root.exists()
    assert list_asked(stand_in) == []


MOUNT = """
import os, sys
from nodeagent.edge.mps.memory import mount, unmount
place, host = sys.argv[1:]
try:
    mount(place, 1 << 20, host)
except OSError as error:
    sys.exit(str(error))
there = os.statvfs(place)
print(there.f_blocks * there.f_frsize, oct(os.stat(place).st_mode), os.path.ismount(place))
unmount(place)
print(os.path.ismount(place))
"""


@pytest.mark.parametrize(
    ("host", "said"), [("", "1048576 0o41777 True False"), ("/missing", "is not seen on the host")]
)
async def test_what_only_the_agent_would_see_is_not_mounted(short_dir: Path, host: str, said: str) -> None:
    """With its size, and open to all, where the host sees it; in a namespace of its own, so that nothing is left."""
    place, root = short_dir / "shm", str(Path(__file__).parents[3])
    place.mkdir()
    command = ("unshare", "--mount", sys.executable, "-c", MOUNT, str(place), host)
    ran = await run(command, {"PATH": os.environ["PATH"], "PYTHONPATH": root}, "", 20.0)
    assert said in ran.said


async def test_a_daemon_comes_once(short_dir: Path, worker: WorkerThread) -> None:
    """A second one in the same place is refused by the first."""
    fake = FakeMps(short_dir / "driver")
    host = host_of(Path("/"), worker, fake.program)
    place = MpsPlace(root=short_dir / "mps", name="x", has_own_memory=False)
    pid = await host.start(place, ())
    with pytest.raises(MpsRefused, match="already running"):
        await host.start(place, ())
    (place.pipes / "nvidia-cuda-mps-control.pid").unlink()
    assert await host.find(place) == pid, "found without its file"
    await host.kill(pid)
    await host.wait_end(pid)


async def test_a_program_that_hangs_is_ended_with_all_that_it_started(short_dir: Path) -> None:
    """Its output until then is kept."""
    ran = await run(("/bin/sh", "-c", "echo begun; sleep 60 & wait"), {}, "", 0.5)
    assert (ran.status, ran.said) == (None, "begun")
    assert (await run(("/bin/cat",), {}, "told\n", 5.0)) == (0, "told\n")
    assert (await run(("/bin/sh", "-c", "exit 3"), {}, "", 5.0)).said == "it said nothing"


@pytest.mark.slow
async def test_a_question_waits_for_the_front_end_that_is_served(
    short_dir: Path, worker: WorkerThread, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It is asked again until it has an answer; one whose turn does not come is told why."""
    fake = FakeMps(short_dir / "driver")
    host = host_of(Path("/"), worker, fake.program)
    place = MpsPlace(root=short_dir / "mps", name="x", has_own_memory=False)
    pid = await host.start(place, ())
    with fake.open_front_end(place.pipes) as other:
        assert other.stdin is not None
        assert other.stdout is not None
        other.stdin.write("get_default_active_thread_percentage\n")
        other.stdin.flush()
        assert other.stdout.readline() == "100.0\n"
        with pytest.raises(MpsSilent, match="serves one front end at a time"):
            await host.ask(place, ("get_server_list",), 3.0)
        turns: list[float] = []

        async def end_other(seconds: float, line: IO[str] = other.stdin) -> None:
            turns.append(seconds)
            line.close()
            other.wait(20)

        with monkeypatch.context() as patched:
            patched.setattr("nodeagent.edge.mps.host.anyio.sleep", end_other)
            assert await host.ask(place, ("get_default_active_thread_percentage",)) == ("100.0",)
        assert len(turns) == 1
    await host.kill(pid)
    await host.wait_end(pid)


async def test_a_question_that_is_always_answered_wants_no_other_after_it(
    short_dir: Path, worker: WorkerThread
) -> None:
    """The daemon writes a line for each command."""
    fake = FakeMps(short_dir / "driver")
    host = host_of(Path("/"), worker, fake.program)
    place = MpsPlace(root=short_dir / "mps", name="x", has_own_memory=False)
    pid = await host.start(place, ())
    await host.read_log(place)
    assert await host.ask(place, ("get_default_active_thread_percentage",)) == ("100.0",)
    assert await host.ask(place, ("get_server_list",)) == ()
    commands = [line.partition("Cmd:")[2] for line in await host.read_log(place) if "Cmd:" in line]
    assert commands == [
        "get_default_active_thread_percentage",
        "get_server_list",
        "get_default_active_thread_percentage",
    ]
    await host.kill(pid)
    await host.wait_end(pid)


class FilledFile:
    """A file to which somebody adds whenever it is looked at."""

    def __init__(self, file: IO[bytes], more: bytes) -> None:
        self._file, self._more = file, more

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._file.close()

    def __getattr__(self, name: str) -> Any:
        return getattr(self._file, name)

    def read(self, size: int) -> bytes:
        text = self._file.read(size)
        with open(self._file.name, "ab") as end:  # noqa: PTH123 - `Path.open` is what leads here
            end.write(self._more)
        return text


async def test_a_log_that_grows_at_each_look_is_cut_once_it_is_long(
    short_dir: Path, worker: WorkerThread, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A tenant who never stops asking fills neither memory nor disk; before that length nothing is lost."""
    host = host_of(Path("/"), worker)
    place = MpsPlace(root=short_dir / "mps", name="x", has_own_memory=False)
    place.logs.mkdir(parents=True)
    log = place.logs / "control.log"
    log.touch()
    more = b"x" * (FLOOD_LIMIT // 8 - 1) + b"\n"
    opened = Path.open

    def open_filled(path: Path, mode: str) -> Any:
        file: Any = opened(path, mode)
        return FilledFile(file, more)

    with monkeypatch.context() as patched:
        patched.setattr(Path, "open", open_filled)
        sizes = []
        for _ in range(30):
            await host.read_log(place)
            sizes.append(log.stat().st_size)
    assert max(sizes) <= FLOOD_LIMIT
    assert sizes.count(0) == 3
