"""What is written down before it is asked for, and what becomes of it when it is not, on virtual time."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import anyio
import pytest

from nodeagent.config.schema import Settings
from nodeagent.config.sections.plugin import JournalSettings
from nodeagent.model.errors import JournalUnavailable
from nodeagent.model.events import DevicesAllocated
from nodeagent.model.ids import ResourceName
from tests.component.allocations.harness import World, held_by_an_earlier_run, told
from tests.support.allocations import GPU, device_ids, holding, listing, pod_named
from tests.support.virtual_time import FakeClock
from tests.support.waiting import settled

pytestmark = pytest.mark.virtual_time


@asynccontextmanager
async def expecting(world: World, devices: str) -> AsyncIterator[int]:
    """A kubelet was just told to ask for these; how often the disk had been written before."""
    async with world.running():
        appends = world.store.appends
        world.door.expect(GPU, device_ids(devices))
        yield appends


async def test_what_is_asked_for_was_written_already(world: World) -> None:
    """One write, before the question; nobody hears of it before the answer."""
    prepared: list[int] = []
    async with expecting(world, "ab") as appends:
        assert world.durable_devices() == ["a", "b"]
        await told()
        assert world.published() == {}
        allocation = await settled(world.door.record(GPU, device_ids("ba"), lambda: prepared.append(1)))
        await told()
        assert world.published() == {"a": "-", "b": "-"}
        assert world.facts(DevicesAllocated) == [
            DevicesAllocated(resource=GPU, devices=device_ids("ab"), number=allocation.number)
        ]
        assert (world.store.appends, world.store.synced) == (appends + 1, True)
        assert prepared == [1]
        second = await settled(world.door.record(GPU, device_ids("c")))
        assert (allocation.number, second.number) == (1, 2)
    assert world.durable_devices() == ["a", "b", "c"]


@pytest.mark.parametrize(("resource", "devices"), [(GPU, "ac"), (GPU, "c"), (ResourceName("nvidia.com/other"), "ab")])
async def test_another_question_takes_it_back(world: World, resource: ResourceName, devices: str) -> None:
    """Only what was asked for is held, under the number that the other would have had."""
    async with expecting(world, "ab"):
        allocation = await settled(world.door.record(resource, device_ids(devices)))
        await told()
        assert sorted(world.published()) == list(devices)
        assert allocation.number == 1
        assert world.door.history == ()
    assert world.durable_devices() == list(devices)
    assert world.durable().history == ()


async def test_what_nobody_asks_for_is_taken_back_in_time(world: World) -> None:
    """A journal does not go on holding what nobody has, and there is no trace of it."""
    async with expecting(world, "ab"):
        await anyio.sleep(3)
        assert world.durable_devices() == []
        assert world.published() == {}
        assert not world.store.synced
        await settled(world.door.record(GPU, device_ids("ab")))
        assert world.durable_devices() == ["a", "b"]
    assert world.durable().history == ()


async def test_an_end_takes_it_back(world: World) -> None:
    """The next agent does not find what nobody has asked this one for."""
    async with expecting(world, "a"):
        pass
    assert world.durable_devices() == []


async def test_an_agent_that_died_may_have_answered(world: World, clock: FakeClock) -> None:
    """What the journal ends with is held until the kubelet's list lacks it, as any allocation without a pod."""
    async with expecting(world, "a"):
        left = world.store.current
    after = World(clock)
    after.store.current = left
    async with after.running():
        assert after.published() == {"a": "-"}
        assert not after.door.doubtful()
        await anyio.sleep(120)
        assert after.published() == {}


async def test_an_expectation_takes_nothing_from_whom_it_is_not_asked_for(world: World) -> None:
    """A container holds on to its devices until they are really handed on."""
    async with world.running():
        await settled(world.door.record(GPU, device_ids("a")))
        world.kubelet.listing = listing(holding("train", "a"))
        await world.door.identify(GPU, device_ids("a"))
        world.door.expect(GPU, device_ids("ab"))
        await settled(world.door.record(GPU, device_ids("c")))
        await told()
        assert world.published() == {"a": "train", "c": "-"}
    assert world.durable().entries[1].allocation.pod == pod_named("train")


async def test_one_thing_is_expected_at_a_time(world: World) -> None:
    """A second preference leaves the first in place; its question is answered all the same."""
    async with expecting(world, "a") as appends:
        world.door.expect(GPU, device_ids("b"))
        assert world.store.appends == appends + 1
        await settled(world.door.record(GPU, device_ids("b")))
    assert world.durable_devices() == ["b"]


async def test_nothing_is_expected_that_may_have_to_be_defended(world: World) -> None:
    """A kubelet that forgot is asked first; an agent that dies before leaves the holder in the journal."""
    async with world.running():
        await held_by_an_earlier_run(world)
        appends = world.store.appends
        world.door.expect(GPU, device_ids("a"))
        assert world.store.appends == appends
    assert world.durable().entries[1].allocation.pod == pod_named("train")


async def test_another_run_of_the_kubelet_is_not_expected(world: World) -> None:
    """What one run was about to ask for is not the next one's; of a kubelet that is down nothing is expected."""
    async with expecting(world, "a"):
        world.kubelet.run_name, world.kubelet.run_since_seconds = "second", world.clock.wall()
        await settled(world.door.record(GPU, device_ids("a")))
        assert world.durable().entries[1].seen_by == "second"
        world.kubelet.is_down = True
        world.door.expect(GPU, device_ids("b"))
        assert world.durable_devices() == ["a"]


async def test_others_who_write_take_it_back_first(world: World) -> None:
    """The kubelet's list is followed between a preference and its question without the two being mixed up."""
    async with world.running():
        await settled(world.door.record(GPU, device_ids("a")))
        world.kubelet.listing = listing(holding("train", "a"))
        world.door.expect(GPU, device_ids("b"))
        await world.door.identify(GPU, device_ids("a"))
        await told()
        assert world.published() == {"a": "train"}
        assert world.durable_devices() == ["a"]
        await settled(world.door.record(GPU, device_ids("b")))
    assert world.durable_devices() == ["a", "b"]


@pytest.mark.parametrize("asked", ["a", "b"])
async def test_a_disk_that_fails_is_heard_of_by_whoever_asks(world: World, asked: str) -> None:
    """A preference is given whatever the disk does; the question is refused, or goes on when the disk is back."""
    async with world.running():
        world.store.failure = "no space left on device"
        world.door.expect(GPU, device_ids("a"))
        with pytest.raises(JournalUnavailable, match="no space left"):
            await settled(world.door.record(GPU, device_ids(asked)))
        await told()
        assert world.published() == {}
        assert "journal-unavailable" in world.set_conditions()
        world.door.expect(GPU, device_ids("a"))
        world.store.failure = ""
        await settled(world.door.record(GPU, device_ids(asked)))
        assert "journal-unavailable" not in world.set_conditions()
    assert world.durable_devices() == [asked]


async def test_a_disk_that_cannot_even_begin_is_heard_of_at_once(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    """Where every thread is stuck the condition is set by the preference, which is given all the same."""

    def fail(content: bytes) -> None:
        raise JournalUnavailable("/state", f"no thread for {len(content)} bytes")

    async with world.running():
        with monkeypatch.context() as patched:
            patched.setattr(world.store, "begin_append", fail)
            world.door.expect(GPU, device_ids("a"))
        assert "journal-unavailable" in world.set_conditions()
        await settled(world.door.record(GPU, device_ids("a")))
    assert world.durable_devices() == ["a"]


async def test_what_cannot_be_taken_back_is_made_up_for(world: World) -> None:
    """The disk fails over the withdrawal: the journal is begun anew without what nobody asked for."""
    async with expecting(world, "a"):
        world.store.failure = "input/output error"
        await anyio.sleep(3)
        assert "journal-unavailable" in world.set_conditions()
        world.store.failure = ""
        await anyio.sleep(2)
        assert world.durable_devices() == []


async def test_degraded_operation_goes_on_without_it(clock: FakeClock) -> None:
    """Where configured, what could not be written before the question is granted, and written later."""
    world = World(clock, Settings(journal=JournalSettings(on_failure="degrade")))
    async with world.running():
        world.store.failure = "read-only file system"
        world.door.expect(GPU, device_ids("a"))
        await settled(world.door.record(GPU, device_ids("a")))
        await told()
        assert world.published() == {"a": "-"}
        world.store.failure = ""
        await anyio.sleep(2)
    assert world.durable_devices() == ["a"]


async def test_a_cancelled_question_leaves_journal_and_ledger_alike(world: World) -> None:
    """A kubelet that hangs up while the disk has what was expected has asked for it all the same."""
    async with expecting(world, "a"):
        world.store.append_seconds = 0.5
        with anyio.move_on_after(0.1):
            await settled(world.door.record(GPU, device_ids("a")))
        await anyio.sleep(1)
        await told()
        assert world.published() == {"a": "-"}
        await settled(world.door.record(GPU, device_ids("b")))
    assert world.durable_devices() == ["a", "b"]


async def test_a_full_journal_is_begun_anew_before_it_is_written_ahead(clock: FakeClock) -> None:
    """Beginning anew takes its time, so it is not done under a preference."""
    world = World(clock, Settings(journal=JournalSettings(rotate_bytes=4096, history_entries=0)))
    async with world.running():
        while world.store.size_bytes <= 4096:
            await settled(world.door.record(GPU, device_ids("a")))
        appends = world.store.appends
        world.door.expect(GPU, device_ids("a"))
        assert world.store.appends == appends


async def test_what_fills_the_journal_is_taken_all_the_same(clock: FakeClock) -> None:
    """It is in the journal already; the next one finds a new journal."""
    world = World(clock, Settings(journal=JournalSettings(rotate_bytes=4096, history_entries=0)))
    async with world.running():
        names = "".join(chr(ord("a") + number) for number in range(26))
        begun = world.store.begun
        while world.store.size_bytes <= 4096:
            world.door.expect(GPU, device_ids(names))
            await settled(world.door.record(GPU, device_ids(names)))
            assert world.store.begun == begun
        await settled(world.door.record(GPU, device_ids("a")))
        assert world.store.begun == begun + 1


async def test_nothing_is_expected_while_nobody_keeps_the_journal(world: World) -> None:
    """A preference is given all the same."""
    world.door.expect(GPU, device_ids("a"))
    assert world.store.current is None
