"""Faults between the bus and the file of the journal: what a receipt says after an end, a kill and a broken disk."""

import anyio
import pytest

from nodeagent.components.allocations.faults import KEEP_SECONDS
from nodeagent.components.allocations.faults_task import NEW_SECONDS, REPEAT_SECONDS
from nodeagent.components.allocations.ledger import Ledger
from nodeagent.model.allocation import Allocation
from tests.component.allocations.harness import World
from tests.support.allocations import GPU, device_ids, holding, listing
from tests.support.journals import gpu
from tests.unit.rules.test_signals import make_fault

pytestmark = pytest.mark.virtual_time


def break_gpu(world: World, number: int = 79) -> None:
    fault = make_fault(number, gpu=gpu("a"), devices=(gpu("a"),))
    world.bus.publish_fact(fault, source="test")


def count(ledger: Ledger, allocation: Allocation) -> list[tuple[int, int]]:
    """Number and count of each fault of a living allocation."""
    return [(each.number, each.count) for each in ledger.faults.get(str(allocation.number), ())]


async def hold(world: World) -> Allocation:
    """The pod `train` holds GPU a."""
    allocation = await world.journal.record(GPU, device_ids("a"))
    world.kubelet.listing = listing(holding("train", "a"))
    await world.journal.identify(GPU, device_ids("a"))
    return allocation


async def test_a_fault_survives_a_kill_and_is_in_the_receipt(world: World) -> None:
    """The file has the fault at once; the next agent writes the receipt."""
    async with world.running():
        allocation = await hold(world)
        await anyio.sleep(10)
        at = world.clock.wall()
        break_gpu(world)
        await anyio.sleep(0.01)
        killed = world.store.current
    world.store.current = killed
    async with world.running():
        world.kubelet.listing = listing(pods=[])
        await anyio.sleep(200)
        (ended,) = world.journal.history
        assert [(fault.number, fault.first_seconds) for fault in ended.faults] == [(79, at)]
        assert ended.allocation.pod is not None
        assert (ended.allocation.pod.name, ended.allocation.number) == ("train", allocation.number)
        assert world.durable().history == (ended,)


async def test_a_storm_is_a_count_and_few_writings(world: World) -> None:
    """Kinds that come together are written together; the end of the agent writes the last count."""
    async with world.running():
        allocation = await hold(world)
        await anyio.sleep(10)
        begun = world.store.begun
        for _ in range(50):
            break_gpu(world)
            break_gpu(world, 48)
            await anyio.sleep(0.01)
        assert (world.store.begun, count(world.durable(), allocation)) == (begun + 1, [(79, 1)])
        await anyio.sleep(2 * NEW_SECONDS)
        assert (world.store.begun, count(world.durable(), allocation)) == (begun + 2, [(79, 50), (48, 50)])
        break_gpu(world)
        await anyio.sleep(REPEAT_SECONDS / 2)
        assert world.store.begun == begun + 2
        await anyio.sleep(REPEAT_SECONDS)
        assert (world.store.begun, count(world.durable(), allocation)) == (begun + 3, [(79, 51), (48, 50)])
        break_gpu(world)
        await anyio.sleep(0.01)
    assert (world.store.begun, count(world.durable(), allocation)) == (begun + 4, [(79, 52), (48, 50)])


async def test_a_fault_of_nobody_is_not_written(world: World) -> None:
    async with world.running():
        begun = world.store.begun
        break_gpu(world)
        await anyio.sleep(10)
        assert (world.store.begun, world.journal.ledger.faults) == (begun, {})


async def test_a_broken_disk_loses_no_fault_of_a_living_agent(world: World) -> None:
    """The fault is written with the journal's next beginning; the receipt stops no pod once the disk is well."""
    async with world.running():
        allocation = await hold(world)
        await anyio.sleep(10)
        world.store.failure = "no space left"
        break_gpu(world)
        await anyio.sleep(5)
        assert "journal-unavailable" in world.set_conditions()
        assert count(world.durable(), allocation) == []
        world.store.failure = ""
        await anyio.sleep(5)
        assert count(world.durable(), allocation) == [(79, 1)]
        await world.journal.record(GPU, device_ids("b"))
    assert "journal-unavailable" not in world.set_conditions()


async def test_the_past_is_forgotten_after_a_month(world: World) -> None:
    """By the agent's next start at the latest."""
    async with world.running():
        await hold(world)
        world.kubelet.listing = listing(pods=[])
        await anyio.sleep(200)
        assert len(world.journal.history) == 1
    await anyio.sleep(KEEP_SECONDS)
    async with world.running():
        assert len(world.journal.history) + len(world.durable().history) == 0
