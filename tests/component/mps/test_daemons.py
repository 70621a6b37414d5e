"""Daemons are processes that outlive the agent, are found again, and are given back with their GPUs."""

import os
import signal
from collections.abc import Callable

import anyio
import pytest
from msgspec.structs import replace

from nodeagent.model.cordons import Cordon, CordonSource
from nodeagent.model.driver import DriverPhase
from nodeagent.model.events import MpsDaemonEnded, MpsDaemonStarted
from nodeagent.model.mps import MpsPhase, MpsPlace
from nodeagent.model.offering import Offering
from tests.component.mps.harness import (
    DEFAULT,
    EXCLUSIVE,
    World,
    client,
    close,
    is_seen,
    read_environment,
    share,
    slice_time,
)
from tests.fakes.mps import FakeMps


async def test_each_gpu_has_a_daemon_with_the_limits_of_a_share(world: World, fake: FakeMps) -> None:
    """Proven by what the daemon itself says, and by nothing in its environment but what it may have."""
    async with world.running():
        (daemon,) = await world.until_phase(MpsPhase.READY)
        assert (await world.modes())[:2] == [EXCLUSIVE, DEFAULT]
        uuid = (await world.uuids())[0]
        assert (daemon.gpus, daemon.owner, daemon.starts) == ((uuid,), "nvidia.com/gpu", 1)
        pipes = world.root / uuid / "pipe"
        memory = daemon.limits.memory_mib[uuid]
        told = fake.ask(pipes, "get_default_active_thread_percentage", "get_default_device_pinned_mem_limit 0")
        assert told == ["25.0", f"{memory // 1024}G"]
        assert daemon.pid is not None
        assert read_environment(daemon.pid) == [
            f"CUDA_MPS_LOG_DIRECTORY={world.root / uuid / 'log'}",
            f"CUDA_MPS_PIPE_DIRECTORY={pipes}",
            f"CUDA_VISIBLE_DEVICES={uuid}",
        ]


async def test_its_shared_memory_is_that_of_its_clients(world: World) -> None:
    """The directory that containers are given as /dev/shm, and not the host's."""
    async with world.running():
        (daemon,) = await world.until_phase(MpsPhase.READY)
        assert daemon.pid is not None
        assert is_seen(world.root / "shm", daemon.pid)


async def test_a_daemon_outlives_the_agent_and_is_found_again(world: World, fake: FakeMps) -> None:
    """With its clients, which notice nothing; a second one is not started."""
    async with world.running():
        (first,) = await world.until_phase(MpsPhase.READY)
    worker = client(fake, world, first.name)
    async with world.running():
        (again,) = await world.until_phase(MpsPhase.READY)
        assert (again.pid, again.starts) == (first.pid, 0)
        assert [one.pid for one in again.clients] == [worker.pid]
        assert len(world.book.under_way) == 1
    assert worker.poll() is None
    assert close(worker) == 0


async def test_one_that_dies_is_started_again_and_those_who_worked_through_it_are_named(
    world: World, fake: FakeMps
) -> None:
    """Noticed at once, whenever the next look would be."""
    async with world.running():
        (first,) = await world.until_phase(MpsPhase.READY)
        world.hold(f"{first.name}::0")
        worker = client(fake, world, first.name)
        assert first.pid is not None
        began = anyio.current_time()
        os.kill(first.pid, signal.SIGKILL)
        (down,) = await world.until_phase(MpsPhase.BROKEN)
        assert anyio.current_time() - began < 0.5
        assert "it ended" in down.reason
        assert worker.wait(10) == 1
        close(worker)
        (again,) = await world.until_phase(MpsPhase.READY)
        assert again.pid != first.pid
        (ended,) = world.facts(MpsDaemonEnded)
        assert ended.pods == ("ns/train-0 (main)",)
        assert "mps-clients-lost" in world.codes()
        world.hold()
        await world.until_clear("mps-clients-lost")
        assert len(world.facts(MpsDaemonStarted)) == 2


@pytest.mark.long
async def test_one_that_does_not_answer_is_left_alone_while_somebody_has_its_gpu(
    make_world: Callable[..., World], fake: FakeMps, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Nobody new gets a share; with nobody left it is ended and started again."""
    monkeypatch.setattr("nodeagent.components.mps.daemon_task.ANSWER_SECONDS", 1.0)
    world = make_world(answer_timeout_seconds=2.0, look_seconds=1.0)
    async with world.running():
        (first,) = await world.until_phase(MpsPhase.READY)
        world.hold(f"{first.name}::0")
        fake.behave("hang")
        (silent,) = await world.until_phase(MpsPhase.BROKEN)
        assert "does not answer within 2 s" in silent.reason
        assert silent.pid == await world.find(first.name) == first.pid
        world.hold()
        await world.until(lambda state: state.daemons[0].pid is None)
        fake.behave()
        (again,) = await world.until_phase(MpsPhase.READY)
        assert again.pid != first.pid


@pytest.mark.parametrize(
    ("behaviour", "said"),
    [
        ("refuse", "no CUDA-capable device"),
        ("hang-start", "did not come up within 1 s"),
        ("no-limits", "as memory limit of device 0"),
    ],
)
@pytest.mark.long
async def test_one_that_cannot_be_had_says_why_and_is_tried_again(
    make_world: Callable[..., World], fake: FakeMps, behaviour: str, said: str
) -> None:
    """The GPU's shares wait; as soon as it can be had they do not."""
    world = make_world(start_timeout_seconds=1.0)
    fake.behave(behaviour)
    async with world.running():
        (down,) = await world.until_phase(MpsPhase.BROKEN)
        assert said in down.reason
        fake.behave()
        await world.until_phase(MpsPhase.READY)


async def test_who_has_a_gpu_otherwise_is_waited_for(world: World) -> None:
    """A pod that takes turns on it would be shut out by the compute mode."""
    uuid = (await world.uuids())[0]
    world.hold(f"{uuid}::0")
    async with world.running():
        told = "it waits for ns/train-0 (main), who have it otherwise"
        (waiting,) = (await world.until(lambda state: any(one.reason == told for one in state.daemons))).daemons
        assert waiting.phase is MpsPhase.WAITING
        assert set(await world.modes()) == {DEFAULT}
        assert "mps-waits" in {one.code for one in world.conditions.all_set()}
        world.hold()
        await world.until_phase(MpsPhase.READY)


async def test_sharing_by_turns_again_waits_until_nobody_goes_through_the_daemon(world: World) -> None:
    """Then the daemon is gone with all its files, and the GPU is as it was."""
    async with world.running():
        (daemon,) = await world.until_phase(MpsPhase.READY)
        world.hold(f"{daemon.name}::1")
        world.configure(slice_time(4))
        (ending,) = await world.until_phase(MpsPhase.STOPPING)
        assert ending.reason == "it waits for ns/train-0 (main)"
        assert await world.find(daemon.name) == daemon.pid
        world.hold()
        await world.until_gone()
        assert set(await world.modes()) == {DEFAULT}
        assert await world.find(daemon.name) is None
        assert not world.root.exists()
        assert world.book.ended == ["given back"]


@pytest.mark.long
@pytest.mark.parametrize("behaviour", ["ignore-quit", "stay"])
async def test_one_that_will_not_end_is_ended(
    make_world: Callable[..., World], fake: FakeMps, monkeypatch: pytest.MonkeyPatch, behaviour: str
) -> None:
    """Neither it nor its GPU is left, whether it says nothing or says that it ends."""
    monkeypatch.setattr("nodeagent.components.mps.daemon_task.QUIT_SECONDS", 1)
    monkeypatch.setattr("nodeagent.components.mps.daemon_task._SETTLE_SECONDS", 0.5)
    world = make_world()
    async with world.running():
        (daemon,) = await world.until_phase(MpsPhase.READY)
        fake.behave(behaviour)
        world.configure(slice_time(4))
        await world.until_gone()
        assert await world.find(daemon.name) is None
        assert set(await world.modes()) == {DEFAULT}


async def test_limits_that_it_no_longer_takes_are_told(make_world: Callable[..., World], fake: FakeMps) -> None:
    """Nobody new gets a share until it does; those at work go on."""
    world = make_world(look_seconds=1.0)
    async with world.running():
        (daemon,) = await world.until_phase(MpsPhase.READY)
        fake.behave("no-limits")
        world.configure(share(2))
        (down,) = await world.until_phase(MpsPhase.BROKEN)
        assert "as memory limit of device 0" in down.reason
        fake.behave()
        (again,) = await world.until_phase(MpsPhase.READY)
        assert (again.pid, again.limits.thread_percentage) == (daemon.pid, 50)


async def test_what_is_left_by_an_agent_that_was_set_otherwise_is_given_back(world: World) -> None:
    """Killed while it shared by MPS, started again without."""
    async with world.running():
        (daemon,) = await world.until_phase(MpsPhase.READY)
    world.configure(slice_time(4))
    async with world.running():
        await world.until_gone()
        assert set(await world.modes()) == {DEFAULT}
        assert await world.find(daemon.name) is None


async def test_an_agent_killed_while_it_takes_a_daemon_away_leaves_nothing(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The next one goes on from there: that there is something to be taken away is forgotten last of all."""
    is_reached = anyio.Event()

    async def hang(_place: MpsPlace) -> None:
        is_reached.set()
        await anyio.sleep_forever()

    async with world.running():
        await world.until_phase(MpsPhase.READY)
        with monkeypatch.context() as patched:
            patched.setattr(world.host, "remove", hang)
            world.configure(slice_time(4))
            await is_reached.wait()
    assert set(await world.modes()) == {DEFAULT}
    assert world.root.exists()
    async with world.running():
        await world.until_gone()
        assert not world.root.exists()
        assert set(await world.modes()) == {DEFAULT}
        assert world.book.ended == ["given back"]


async def test_other_replicas_count_for_new_clients(world: World, fake: FakeMps) -> None:
    """Of the server that runs too; who is at work goes on with what it has."""
    async with world.running():
        (daemon,) = await world.until_phase(MpsPhase.READY)
        worker = client(fake, world, daemon.name)
        world.configure(share(2))
        await world.until(lambda state: state.daemons[0].limits.thread_percentage == 50)
        pipes = world.root / daemon.name / "pipe"
        (server,) = fake.ask(pipes, "get_server_list")
        assert fake.ask(pipes, f"get_active_thread_percentage {server}") == ["50.0"]
        assert worker.poll() is None
        assert close(worker) == 0


async def test_the_daemon_of_a_cordoned_gpu_stays_for_those_who_have_it(world: World, fake: FakeMps) -> None:
    """A cordon ends nobody's work: the daemon is wanted as before, with the limits of now."""
    async with world.running():
        (daemon,) = await world.until_phase(MpsPhase.READY)
        worker = client(fake, world, daemon.name)
        offering = world.bus.read(Offering)
        assert offering is not None
        cordoned = (
            replace(
                door,
                is_open=False,
                cordons=(Cordon(gpu=door.gpu, source=CordonSource.COMMAND, named=str(door.index), reason="fan"),),
            )
            for door in offering.doors
        )
        world.bus.publish_state(Offering(doors=tuple(cordoned)), source="offering")
        world.configure(share(2))
        state = await world.until(lambda state: state.daemons[0].limits.thread_percentage == 50)
        assert state.daemons[0].pid == daemon.pid
        assert worker.poll() is None
        assert close(worker) == 0


@pytest.mark.long
async def test_a_server_that_is_lost_is_told_with_its_clients(make_world: Callable[..., World], fake: FakeMps) -> None:
    """The daemon goes on, and starts another for the next client."""
    world = make_world(look_seconds=1.0)
    async with world.running():
        (daemon,) = await world.until_phase(MpsPhase.READY)
        worker = client(fake, world, daemon.name)
        state = await world.until(lambda state: bool(state.daemons[0].clients))
        os.kill(state.daemons[0].servers[0].pid, signal.SIGKILL)
        await world.until(lambda state: not state.daemons[0].servers)
        assert worker.wait(10) == 1
        close(worker)
        (ended,) = world.facts(MpsDaemonEnded)
        assert (ended.reason[:10], ended.pods) == ("its server", (f"process {worker.pid}",))
        assert world.state.daemons[0].phase is MpsPhase.READY


@pytest.mark.long
async def test_a_server_that_nobody_worked_through_may_go(make_world: Callable[..., World], fake: FakeMps) -> None:
    """Nobody has lost anything, so nobody is named."""
    world = make_world(look_seconds=1.0)
    async with world.running():
        (daemon,) = await world.until_phase(MpsPhase.READY)
        worker = client(fake, world, daemon.name)
        await world.until(lambda state: bool(state.daemons[0].clients))
        assert close(worker) == 0
        idle = await world.until(lambda state: not state.daemons[0].clients)
        (server,) = idle.daemons[0].servers
        os.kill(server.pid, signal.SIGKILL)
        await world.until(lambda state: not state.daemons[0].servers)
        assert not world.facts(MpsDaemonEnded)
        assert not world.state.daemons[0].last_fault


async def test_a_driver_that_is_released_is_not_held_by_a_daemon(world: World) -> None:
    """With nobody at work it is ended, and started again afterwards."""
    async with world.running():
        (first,) = await world.until_phase(MpsPhase.READY)
        world.drive(DriverPhase.RELEASED)
        await world.until_phase(MpsPhase.WAITING)
        assert await world.find(first.name) is None
        world.drive(DriverPhase.READY)
        (again,) = await world.until_phase(MpsPhase.READY)
        assert again.pid != first.pid


async def test_eight_daemons_of_one_node(
    make_world: Callable[..., World], record_property: Callable[[str, object], None]
) -> None:
    """All GPUs at once, by one session of the worker that writes."""
    world = make_world(profile="dgx-h100", sharing=share(4, devices="all"))
    async with world.running():
        began = anyio.current_time()
        daemons = await world.until(
            lambda state: len(state.daemons) == 8 and all(one.phase is MpsPhase.READY for one in state.daemons)
        )
        record_property("ready_seconds", anyio.current_time() - began)
        assert len({one.pid for one in daemons.daemons}) == 8
