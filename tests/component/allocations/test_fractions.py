"""Promises and bindings of parts of GPUs, in the journal by way of the relay."""

import anyio
import pytest
from msgspec.structs import replace

from nodeagent.config.schema import Settings
from nodeagent.config.sections.plugin import JournalSettings
from nodeagent.model.errors import BindingRefused, JournalUnavailable
from nodeagent.model.ids import DeviceId
from nodeagent.model.journal import FractionTable
from tests.component.allocations.harness import World
from tests.support.fractions import ids, make_bound, part
from tests.support.journals import CORE, MEMORY
from tests.support.virtual_time import FakeClock

pytestmark = pytest.mark.virtual_time

CAPACITIES = (part(0, 100, 32), part(1, 100, 32))
WANTED = replace(make_bound(0, [1, 2], part(0, 60, 8)), container="setup")


async def test_promised_bound_and_released(world: World) -> None:
    """Each is durable when it is answered, told to everybody, and known to the next agent."""
    async with world.running():
        cores = await world.journal.reserve(CORE, ids("ab"), "kind=p1")
        memory = await world.journal.reserve(MEMORY, ids("m"), "")
        assert (cores.number, memory.number, cores.cdi_name, cores.devices) == (1, 2, "kind=p1", ids("ab"))
        assert cores.since_seconds == pytest.approx(world.clock.wall(), abs=0.1)
        assert world.durable().fractions == world.journal.parts()
        binding = await world.journal.bind(WANTED, CAPACITIES)
        assert binding == replace(WANTED, number=3)
        assert world.durable().fractions.bindings == {3: binding}
        changed = await world.journal.bind(replace(binding, parts=(part(0, 80, 8),)), CAPACITIES)
        assert changed.number == 3
        await anyio.wait_all_tasks_blocked()
        latest = world.bus.latest(FractionTable)
        assert latest is not None
        assert latest.value.bindings == {3: changed}
    async with world.running():
        table = world.journal.parts()
        assert table is not None
        assert table.bindings == {3: changed}
        await world.journal.release({3: "the pod has ended"})
        assert world.durable().fractions == FractionTable()


async def test_the_account_is_looked_at_when_it_is_written(world: World) -> None:
    """Whatever was decided before: what others were given since counts, and what leaves does not."""
    async with world.running():
        for devices in ("ab", "m", "cd"):
            await world.journal.reserve(CORE, ids(devices), "")
        first = await world.journal.bind(WANTED, CAPACITIES)
        second = make_bound(0, [3], part(0, 60, 8))
        with pytest.raises(BindingRefused, match="40 of 100 cores left, not 60"):
            await world.journal.bind(second, CAPACITIES)
        with pytest.raises(BindingRefused, match="redeemed by binding"):
            await world.journal.bind(replace(second, reservations=(1,)), CAPACITIES)
        before = world.journal.parts()
        assert before == world.durable().fractions
        bound = await world.journal.bind(second, CAPACITIES, [first.number])
        table = world.durable().fractions
        assert table.bindings == {bound.number: bound}
        assert list(table.reservations) == [3, 5, 6]


async def test_who_leaves_for_another_keeps_its_promise(world: World) -> None:
    """Under its name, for it may start again; ids that the other one has are that one's."""
    async with world.running():
        await world.journal.reserve(CORE, ids("ab"), "kind=p1")
        await world.journal.reserve(MEMORY, ids("m"), "")
        await world.journal.reserve(CORE, ids("abc"), "kind=p3")
        first = await world.journal.bind(WANTED, CAPACITIES)
        second = await world.journal.bind(make_bound(0, [3], part(0, 60, 8)), CAPACITIES, [first.number])
        table = world.durable().fractions
        assert (second.number, list(table.bindings)) == (7, [7])
        assert {number: (each.devices, each.cdi_name) for number, each in table.reservations.items()} == {
            3: (ids("abc"), "kind=p3"), 5: (ids("ab"), "kind=p1"), 6: (ids("m"), ""),
        }  # fmt: skip
        await world.journal.reserve(CORE, ids("abc"), "kind=p8")
        third = await world.journal.bind(make_bound(0, [8], part(0, 60, 8)), CAPACITIES, [7, 99])
        assert list(world.durable().fractions.reservations) == [5, 6, 8]
        assert world.journal.parts() == world.durable().fractions
        assert third.number == 9


async def test_what_a_container_had_under_other_ids_is_promised_to_it_no_more(world: World) -> None:
    """The kubelet has forgotten those, and may have given them to somebody else, to whom they would seem promised."""
    async with world.running():
        for devices in ("ab", "cd"):
            await world.journal.reserve(CORE, ids(devices), "")
        first = await world.journal.bind(make_bound(0, [1], part(0, 60, 8)), CAPACITIES)
        await world.journal.bind(make_bound(0, [2], part(0, 60, 8)), CAPACITIES, [first.number])
        assert list(world.durable().fractions.reservations) == [2]


async def test_what_cannot_be_written_is_not_so(world: World) -> None:
    """Neither promise nor binding nor end."""
    async with world.running():
        for devices in ("ab", "m"):
            await world.journal.reserve(CORE, ids(devices), "")
        before = world.journal.parts()
        world.store.failure = "no space left on device"
        with pytest.raises(JournalUnavailable):
            await world.journal.reserve(CORE, [DeviceId("x")], "")
        with pytest.raises(JournalUnavailable):
            await world.journal.bind(WANTED, CAPACITIES)
        with pytest.raises(JournalUnavailable):
            await world.journal.release({1: "over"})
        assert world.journal.parts() == before


async def test_where_pods_are_not_refused_for_a_broken_disk_starts_count(clock: FakeClock) -> None:
    """They are written when the disk is back; what ends without being written would be forgotten, so it stays."""
    world = World(clock, Settings(journal=JournalSettings(on_failure="degrade")))
    async with world.running():
        world.store.failure = "read-only file system"
        for devices in ("ab", "m"):
            await world.journal.reserve(CORE, ids(devices), "")
        binding = await world.journal.bind(WANTED, CAPACITIES)
        with pytest.raises(JournalUnavailable):
            await world.journal.release({binding.number: "over"})
        table = world.journal.parts()
        assert table is not None
        assert table.bindings == {binding.number: binding}
        world.store.failure = ""
        await world.journal.release({binding.number: "over"})
        assert world.durable().fractions == FractionTable()


async def test_nobody_is_asked_while_no_journal_is_kept(world: World) -> None:
    """Unknown is not the same as nothing."""
    assert world.journal.parts() is None
    for call in (
        world.journal.reserve(CORE, ids("ab"), ""),
        world.journal.bind(WANTED, CAPACITIES),
        world.journal.release({1: "over"}),
    ):
        with pytest.raises(JournalUnavailable):
            await call
    world.store.failure = "input/output error"
    async with world.running():
        assert world.journal.parts() is None
