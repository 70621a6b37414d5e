"""The life of NVIDIA's own daemon, of two drivers, under the agent's component and its edge; it has no GPU."""

import os
import signal
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from nodeagent.core.children.worker_thread import WorkerThread
from nodeagent.core.clock import SystemClock
from nodeagent.edge.mps.host import HostMps, MpsHostSettings
from nodeagent.model.errors import MpsRefused, MpsSilent
from nodeagent.model.events import MpsDaemonEnded
from nodeagent.model.mps import MpsPhase, MpsPlace
from tests.component.mps.harness import DEFAULT, EXCLUSIVE, World, is_seen, read_environment, share, slice_time
from tests.fakes.mps import NAME
from tests.originals.packages import DRIVERS, REASON, find_program
from tests.support.waiting import wait_until


@pytest.fixture(params=DRIVERS)
def program(request: pytest.FixtureRequest) -> Path:
    found = find_program(request.param, NAME)
    if found is None:
        pytest.skip(REASON)
    return found


@pytest.fixture
def world(short_dir: Path, program: Path) -> Iterator[World]:
    world = World(SystemClock(), short_dir, program=program, sharing=share(3), look_seconds=1.0)
    yield world
    world.close()


@pytest.fixture
def host(program: Path) -> Iterator[HostMps]:
    worker = WorkerThread("files of a test")
    yield HostMps(MpsHostSettings(find_root=lambda: Path("/"), program=program), worker)
    worker.close()


def ask(world: World, program: Path, name: str, *commands: str) -> list[str]:
    """By its own front end, past the agent."""
    # Again where the agent is being served: there is one front end at a time.
    while not (lines := _ask(world, program, name, *commands)):
        pass
    return lines


def _ask(world: World, program: Path, name: str, *commands: str) -> list[str]:
    done = subprocess.run(
        [program],
        input="".join(f"{one}\n" for one in commands),
        env={"CUDA_MPS_PIPE_DIRECTORY": str(world.root / name / "pipe")},
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        text=True,
        timeout=20,
        check=False,
    )
    return done.stdout.splitlines()


async def test_it_becomes_ready_with_the_limits_of_a_share(world: World, program: Path) -> None:
    """A third of the GPU is no whole number of G; it has nothing of the agent's environment."""
    async with world.running():
        (daemon,) = await world.until_phase(MpsPhase.READY)
        assert (await world.modes())[0] == EXCLUSIVE
        memory = daemon.limits.memory_mib[daemon.gpus[0]]
        assert memory % 1024 != 0, "an odd size"
        told = ask(
            world, program, daemon.name, "get_default_device_pinned_mem_limit 0", "get_default_active_thread_percentage"
        )
        assert told == [f"{memory // 1024}G", "33.0"]
        assert daemon.pid is not None
        assert is_seen(world.root / "shm", daemon.pid)
        assert {one.partition("=")[0] for one in read_environment(daemon.pid)} == {
            "CUDA_MPS_LOG_DIRECTORY",
            "CUDA_MPS_PIPE_DIRECTORY",
            "CUDA_VISIBLE_DEVICES",
        }
        world.configure(share(7))
        await world.until(lambda state: state.daemons[0].limits.thread_percentage == 14)
        assert world.state.daemons[0].pid == daemon.pid
        assert "mps-daemon-down" not in world.codes()


async def test_its_death_is_noticed_and_another_comes(world: World) -> None:
    """At once: the kernel says it. Those who had the GPU are named."""
    async with world.running():
        (first,) = await world.until_phase(MpsPhase.READY)
        world.hold(f"{first.name}::0")
        assert first.pid is not None
        os.kill(first.pid, signal.SIGKILL)
        (again,) = (await world.until(lambda state: state.daemons[0].starts == 2)).daemons
        assert again.pid != first.pid
        (ended,) = world.facts(MpsDaemonEnded)
        assert ended.pods == ("ns/train-0 (main)",)


async def test_it_outlives_the_agent_and_ends_when_nobody_wants_it(world: World) -> None:
    """The agent that comes next finds it; when it is told to end it ends, and nothing is left."""
    async with world.running():
        (first,) = await world.until_phase(MpsPhase.READY)
    async with world.running():
        (again,) = await world.until_phase(MpsPhase.READY)
        assert (again.pid, again.starts) == (first.pid, 0)
        world.configure(slice_time(2))
        await world.until_gone()
        assert await world.find(first.name) is None
        assert set(await world.modes()) == {DEFAULT}
        assert not world.root.exists()


async def test_limits_of_another_user_do_not_stay(world: World, program: Path) -> None:
    """Told past the agent, as a process of a container may do."""
    async with world.running():
        (daemon,) = await world.until_phase(MpsPhase.READY)
        command = "set_default_active_thread_percentage 99"
        assert ask(world, program, daemon.name, command) == ["99.0"]
        await wait_until(lambda: ask(world, program, daemon.name, "get_default_active_thread_percentage") == ["33.0"])


async def test_its_log_is_cut_under_its_hands(host: HostMps, short_dir: Path) -> None:
    """It goes on writing at the beginning; what was in it has been read before."""
    place = MpsPlace(root=short_dir / "mps", name="x", has_own_memory=False)
    pid = await host.start(place, ())
    log = place.logs / "control.log"
    seen: list[str] = []
    longest = 0
    for _ in range(40):
        await host.ask(place, ("get_server_list",) * 50)
        seen += await host.read_log(place)
        longest = max(longest, log.stat().st_size)
    assert sum("Cmd:get_server_list" in line for line in seen) > 1000
    assert longest < 32 * 1024
    assert b"\0" not in log.read_bytes()
    await host.ask(place, ("quit",))
    await host.wait_end(pid)
    await host.remove(place)


async def test_a_pipe_directory_that_it_may_not_use_is_told(host: HostMps, short_dir: Path) -> None:
    """In its own words; when the way is free it starts."""
    place = MpsPlace(root=short_dir / "mps", name="x", has_own_memory=False)
    place.pipes.mkdir(parents=True)
    (place.pipes / "control_lock").mkdir()
    with pytest.raises(MpsRefused, match="nvidia-cuda-mps-control ended with 1"):
        await host.start(place, ())
    with pytest.raises(MpsSilent, match="Cannot find MPS control daemon process"):
        await host.ask(place, ("get_server_list",))
    (place.pipes / "control_lock").rmdir()
    pid = await host.start(place, ())
    with pytest.raises(MpsRefused, match="already running"):
        await host.start(place, ())
    await host.kill(pid)
    await host.wait_end(pid)
    assert await host.find(place) is None
