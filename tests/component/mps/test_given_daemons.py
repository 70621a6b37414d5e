"""Daemons for one claim each, and for the parts of a GPU: there while somebody has what they are for."""

import os
import signal
from collections.abc import Callable
from pathlib import Path

import pytest

from nodeagent.model.allocation import PodIdentity
from nodeagent.model.errors import MpsRefused
from nodeagent.model.events import MpsDaemonEnded
from nodeagent.model.ids import GpuUuid
from nodeagent.model.journal import Binding, Enforcement, GpuFraction
from nodeagent.model.mps import MpsLimits, MpsPhase, MpsState
from nodeagent.rules.mps.fractions import plan_fraction_access
from tests.component.mps.harness import DEFAULT, EXCLUSIVE, World, slice_time
from tests.fakes.mps import FakeMps


async def test_a_claim_has_a_daemon_of_its_own(make_world: Callable[..., World], fake: FakeMps) -> None:
    """For its GPUs, with its limits, until it is closed; over a restart of the agent too."""
    world = make_world(sharing=slice_time(2), profile="dgx-h100", claims=True)
    async with world.running():
        gpus = (await world.uuids())[:2]
        limits = MpsLimits(thread_percentage=30, memory_mib={gpus[1]: 100})
        access = await world.handle.get().open_claim("uid-1", gpus, limits)
        assert access.environment == {"CUDA_MPS_PIPE_DIRECTORY": "/tmp/nvidia-mps"}
        host_paths = [Path(mount.host_path) for mount in access.mounts]
        assert host_paths == [world.root / world.state.daemons[0].name / "pipe", world.root / "shm"]
        assert (await world.modes())[:3] == [EXCLUSIVE, EXCLUSIVE, DEFAULT]
        assert await world.handle.get().open_claim("uid-1", gpus, limits) == access
        with pytest.raises(MpsRefused, match="with other limits"):
            await world.handle.get().open_claim("uid-1", gpus, MpsLimits())
        with pytest.raises(MpsRefused, match="the claim uid-1"):
            await world.handle.get().open_claim("uid-2", gpus[:1], MpsLimits())
        told = fake.ask(host_paths[0], "get_default_active_thread_percentage", "get_default_device_pinned_mem_limit 1")
        assert told == ["30.0", "100M"]
        (first,) = world.state.daemons
    async with world.running():
        (again,) = await world.until_phase(MpsPhase.READY)
        assert again.pid == first.pid
        await world.handle.get().close_claim("uid-1")
        assert not world.state.daemons
        assert await world.modes() == [DEFAULT] * 8
        await world.handle.get().close_claim("uid-1")


async def test_a_claim_that_cannot_have_its_daemon_is_told_why_and_leaves_nothing(
    make_world: Callable[..., World], fake: FakeMps
) -> None:
    """Asked again, it is tried again."""
    world = make_world(sharing=slice_time(2), claims=True)
    fake.behave("refuse")
    async with world.running():
        gpus = await world.uuids()
        with pytest.raises(MpsRefused, match="no CUDA-capable device"):
            await world.handle.get().open_claim("uid-1", gpus, MpsLimits())
        await world.until_gone()
        assert set(await world.modes()) == {DEFAULT}
        fake.behave()
        await world.handle.get().open_claim("uid-1", gpus, MpsLimits())
        with pytest.raises(MpsRefused, match="is not on this node"):
            await world.handle.get().open_claim("uid-2", [gpus[0], gpus[0][:-1] + "x"], MpsLimits())  # type: ignore[list-item]
    with pytest.raises(MpsRefused, match=r"set mps\.claims to true"):
        await world.handle.get().close_claim("uid-1")


async def test_a_claim_of_several_users_has_a_daemon_of_that_mode_or_is_told_that_the_driver_has_none(
    make_world: Callable[..., World], fake: FakeMps
) -> None:
    world = make_world(sharing=slice_time(2), claims=True)
    several = MpsLimits(multi_user=True)
    async with world.running():
        gpus = await world.uuids()
        with pytest.raises(MpsRefused, match="no multi-user mode"):
            await world.handle.get().open_claim("uid-1", gpus, several)
        await world.until_gone()
        fake.behave("multi-user")
        await world.handle.get().open_claim("uid-1", gpus, several)
        (daemon,) = world.state.daemons
        assert daemon.limits.multi_user
        await world.handle.get().close_claim("uid-1")


async def test_a_claim_that_is_asked_for_again_while_its_daemon_is_broken_keeps_it(
    make_world: Callable[..., World], fake: FakeMps
) -> None:
    """Its containers have it already: they are told that it does not work, and it comes back, after a restart too."""
    world = make_world(sharing=slice_time(2), claims=True)
    async with world.running():
        gpus = await world.uuids()
        access = await world.handle.get().open_claim("uid-1", gpus, MpsLimits())
    for _ in range(2):
        async with world.running():
            (daemon,) = await world.until_phase(MpsPhase.READY)
            fake.behave("refuse")
            assert daemon.pid is not None
            os.kill(daemon.pid, signal.SIGKILL)
            await world.until_phase(MpsPhase.BROKEN)
            with pytest.raises(MpsRefused, match="is not ready"):
                await world.handle.get().open_claim("uid-1", gpus, MpsLimits())
            fake.behave()
            await world.until_phase(MpsPhase.READY)
            assert await world.handle.get().open_claim("uid-1", gpus, MpsLimits()) == access


def make_part(number: int, gpu: GpuUuid, cores: int, mib: int, enforcement: Enforcement = Enforcement.MPS) -> Binding:
    """A container has a part of a GPU."""
    return Binding(
        number=number,
        reservations=(),
        pod=PodIdentity(namespace="ns", name=f"part-{number}", uid=f"uid-part-{number}"),
        container="main",
        parts=(GpuFraction(gpu=gpu, cores=cores, memory_bytes=mib << 20),),
        since_seconds=0.0,
        enforcement=enforcement,
    )


def is_ready(state: MpsState, gpu: GpuUuid, *, but: int | None = None) -> bool:
    """Whether the daemon of a GPU is ready, and another process than this one."""
    daemon = state.find_gpu(gpu)
    return daemon is not None and daemon.phase is MpsPhase.READY and daemon.pid != but


@pytest.mark.long
async def test_parts_of_a_gpu_have_a_daemon_while_there_are_any(
    make_world: Callable[..., World], fake: FakeMps
) -> None:
    """Its limits follow the largest of them, for clients to come; it is the same after a restart of the agent."""
    world = make_world(sharing=slice_time(2))
    uuid = (await world.uuids())[0]
    small, large = make_part(1, uuid, 20, 1024), make_part(2, uuid, 30, 4096)
    async with world.running():
        world.bind(small)
        (first,) = await world.until_phase(MpsPhase.READY)
        assert (first.name, first.gpus, first.owner) == (f"part-{uuid}", (uuid,), "parts")
        assert (await world.modes())[0] == EXCLUSIVE
        world.bind(small, large)
        await world.until(lambda state: state.daemons[0].limits.thread_percentage == 30)
        pipes = world.root / first.name / "pipe"
        told = fake.ask(pipes, "get_default_active_thread_percentage", "get_default_device_pinned_mem_limit 0")
        assert told == ["30.0", "4G"]
        own = {**plan_fraction_access(world.live.now, small).environment, "CUDA_MPS_PIPE_DIRECTORY": str(pipes)}
        with fake.open_client(own) as worker:
            assert worker.stdout is not None
            assert worker.stdout.readline() == "threads 20.0 memory 0=1024M\n"
    async with world.running():
        (again,) = await world.until_phase(MpsPhase.READY)
        assert again.pid == first.pid
        world.bind(small)
        await world.until(lambda state: state.daemons[0].limits.thread_percentage == 20)
        world.bind()
        await world.until_gone()
        assert set(await world.modes()) == {DEFAULT}
        assert world.book.ended == ["given back"]


@pytest.mark.long
async def test_containers_that_lose_the_daemon_of_their_parts_are_named(world: World) -> None:
    """As those of shares are, until they have ended."""
    uuid = (await world.uuids())[1]
    async with world.running():
        world.bind(make_part(1, uuid, 20, 1024))
        state = await world.until(lambda state: is_ready(state, uuid))
        found = state.find_gpu(uuid)
        assert found is not None
        assert found.pid is not None
        os.kill(found.pid, signal.SIGKILL)
        await world.until(lambda state: is_ready(state, uuid, but=found.pid))
        (ended,) = world.facts(MpsDaemonEnded)
        assert ended.pods == ("ns/part-1 (main)",)
        assert "mps-clients-lost" in world.codes()
        world.bind()
        await world.until_clear("mps-clients-lost")


@pytest.mark.long
async def test_no_daemon_is_started_over_the_head_of_one_who_has_another_part(world: World) -> None:
    """Of the same GPU: the compute mode would shut it out; it is waited for, and named."""
    uuid = (await world.uuids())[1]
    other = make_part(2, uuid, 10, 1024, Enforcement.LIBRARY)
    async with world.running():
        world.bind(make_part(1, uuid, 20, 1024), other)
        told = "it waits for ns/part-2 (main), who have it otherwise"
        await world.until(lambda state: any(one.reason == told for one in state.daemons))
        world.bind(make_part(1, uuid, 20, 1024))
        await world.until(lambda state: is_ready(state, uuid))
