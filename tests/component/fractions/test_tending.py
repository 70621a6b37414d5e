"""What was promised and bound is given back when all agree that it has ended, on virtual time."""

import anyio
import pytest

from nodeagent.model.events import PartReleased
from nodeagent.model.parts import ContainerState, PodContainer
from nodeagent.model.ports.hardware import ProcessPlace
from nodeagent.model.telemetry import GpuSample, NodeSample, ProcessSample
from tests.component.fractions.harness import FakePlaces, World
from tests.support.gpus import gpu_uuid

pytestmark = pytest.mark.virtual_time


async def test_what_has_ended_is_given_back_with_its_files(world: World) -> None:
    """And it is told why; a promise that nobody redeemed goes the same way."""
    async with world.running():
        held, never = await world.admit("train", 30, 32), await world.admit("never", 10, 4)
        binding = await world.start(held)
        for each in (held, never):
            world.end(each)
        await anyio.sleep(40)
        assert (world.table.reservations, world.table.bindings) == ({}, {})
        assert (world.specs.files, world.folders.limits) == ({}, {})
        reasons = {fact.number: fact.reason for fact in world.facts(PartReleased)}
        assert reasons[binding.number] == "kubelet, processes and containers agree that it is over"
        assert len(reasons) == 3


async def test_what_cannot_be_written_down_is_not_given_back(world: World) -> None:
    """It is tried again."""
    async with world.running():
        held = await world.admit("train", 30, 32)
        await world.start(held)
        world.end(held)
        world.store.failure = "read-only file system"
        await anyio.sleep(60)
        assert len(world.table.bindings) == len(world.folders.limits) == 1
        world.store.failure = ""
        await anyio.sleep(60)
        assert world.table.bindings == {}


async def test_a_process_keeps_the_part_that_it_uses(world: World) -> None:
    """Though the kubelet has forgotten it: that is told. A driver that says nothing frees nothing either."""
    places = world.places = FakePlaces()
    async with world.running():
        held = await world.admit("train", 30, 32)
        await world.start(held)
        world.end(held)
        await anyio.sleep(60)
        assert len(world.table.bindings) == 1
        assert world.details("part-orphaned") == {}
        places.known[7] = ProcessPlace(pod_uid=held.pod.uid, container_id="c")
        for pids, orphans, bindings in (((7, 8), 1, 1), ((8,), 0, 0), ((), 0, 0)):
            for _ in range(60):
                processes = tuple(ProcessSample(pid=pid) for pid in pids)
                sample = GpuSample(uuid=gpu_uuid(0), processes=processes)
                world.tell(NodeSample(time_seconds=world.clock.wall(), gpus=(sample, GpuSample(uuid=gpu_uuid(1)))))
                await anyio.sleep(1)
            assert len(world.details("part-orphaned")) == orphans
            assert len(world.table.bindings) == bindings


async def test_what_the_journal_has_lost_is_taken_in_when_it_can_be_written(world: World) -> None:
    """At the beginning, and again until the disk takes it; the container keeps its GPU."""
    async with world.running():
        held = await world.admit("train", 30, 32)
        before = await world.start(held)
    world.store.current = world.store.previous = None
    world.containers = (PodContainer(id="1", pod_uid=held.pod.uid, name="main", state=ContainerState.RUNNING),)
    async with world.keeping():
        world.tell()
        world.store.failure = "read-only file system"
        async with world.giving():
            await anyio.sleep(5)
            assert world.table.bindings == {}
    world.store.failure = ""
    async with world.running():
        await anyio.sleep(5)
        (adopted,) = world.table.bindings.values()
        assert (adopted.pod, adopted.parts) == (held.pod, before.parts)
        assert await world.start(held) == adopted
