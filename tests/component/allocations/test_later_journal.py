"""A journal that a later version wrote, and one of an earlier format, as an agent finds them when it starts."""

import anyio
import pytest

from nodeagent.components.allocations.journal_format import encode_records
from nodeagent.components.allocations.ledger import FORMAT, Opened
from nodeagent.components.allocations.repair_journal_task import DriverUpgrades, RepairSessions
from nodeagent.components.allocations.roles.grants import Granted
from nodeagent.config.schema import Settings
from nodeagent.config.sections.plugin import JournalSettings
from nodeagent.model.cordons import CordonSource, CordonTable
from nodeagent.model.errors import JournalUnavailable
from nodeagent.model.journal import ChosenAllocationModes
from nodeagent.model.offering import AllocationMode
from nodeagent.model.upgrades import UpgradePhase
from tests.component.allocations.harness import World
from tests.support.allocations import GPU, device_ids, make_entry
from tests.support.journals import gpu, make_cordon, make_session
from tests.support.repairs import make_upgrade
from tests.support.virtual_time import FakeClock

pytestmark = pytest.mark.virtual_time

NEWER = encode_records([Opened(format=FORMAT + 1, machine="machine", boot="boot")], 0)[0] + b"what it says\n"


async def test_a_newer_journal_is_left_as_it_is_until_it_is_moved_away(world: World) -> None:
    """No pod is admitted over it; one line says which file, which format, and what helps; moved away, all goes on."""
    world.store.current = NEWER
    async with world.running():
        await anyio.sleep(5)
        with pytest.raises(JournalUnavailable) as refused:
            await world.journal.record(GPU, device_ids("a"))
        assert str(refused.value) == (
            "cannot write the allocation journal /state/allocations.journal: it has format 3, "
            "and this version reads formats 1 to 2: upgrade the agent, or move the file away"
        )
        with pytest.raises(JournalUnavailable, match="format 3"):
            await world.journal.set_allocation_mode(gpu("a"), AllocationMode.NONE)
        assert world.journal.doors() is None
        assert world.bus.latest(ChosenAllocationModes) is None
        (condition,) = [one for one in world.conditions.all_set() if one.code == "journal-unavailable"]
        assert condition.detail == str(refused.value)
        assert (world.store.current, world.store.begun, world.store.set_aside_names) == (NEWER, 0, [])
        world.store.current = None
        await anyio.sleep(2)
        await world.journal.record(GPU, device_ids("a"))
        assert "journal-unavailable" not in world.set_conditions()
    assert world.durable_devices() == ["a"]


async def test_a_newer_journal_is_left_as_it_is_by_degraded_operation_too(clock: FakeClock) -> None:
    """Pods are admitted without a record, as configured, and the file is not touched."""
    world = World(clock, Settings(journal=JournalSettings(on_failure="degrade")))
    world.store.current, world.store.previous = None, NEWER
    async with world.running():
        await world.journal.record(GPU, device_ids("a"))
        await anyio.sleep(5)
        assert world.published() == {"a": "-"}
    assert (world.store.current, world.store.previous) == (None, NEWER)


async def test_a_journal_of_format_1_is_taken_over(world: World) -> None:
    """It is begun anew in this format at the start; the file as it was is the one before."""
    old = encode_records([Opened(format=1, machine="machine", boot="boot"), Granted(entry=make_entry(1, "a"))], 0)[0]
    world.store.current = old
    async with world.running():
        assert world.durable_devices() == ["a"]
        assert world.journal.doors() == {}
    assert b'"format":2' in (world.store.current or b"")
    assert world.store.previous == old


async def test_a_door_outlives_the_agent(world: World) -> None:
    """It is durable before the call returns, told to everybody, and known again after a restart."""
    async with world.running():
        await world.journal.set_allocation_mode(gpu("a"), AllocationMode.NONE)
        await world.journal.set_allocation_mode(gpu("b"), AllocationMode.FRACTIONS)
        assert world.store.synced
        assert world.durable().doors == {gpu("a"): AllocationMode.NONE, gpu("b"): AllocationMode.FRACTIONS}
        await world.journal.set_allocation_mode(gpu("b"), None)
    assert world.journal.doors() is None
    async with world.running():
        assert world.journal.doors() == {gpu("a"): AllocationMode.NONE}
        told = world.bus.latest(ChosenAllocationModes)
        assert told is not None
        assert told.value == ChosenAllocationModes(doors={gpu("a"): AllocationMode.NONE})


async def test_a_cordon_outlives_the_agent(world: World) -> None:
    """It is durable before the call returns, told to everybody, and known again after a restart."""
    kept = (make_cordon("a", 90.0),)
    async with world.running():
        await world.journal.keep_cordons(CordonSource.ANNOTATION, kept)
        await world.journal.keep_cordons(CordonSource.COMMAND, (make_cordon("b"),))
        assert world.store.synced
        await world.journal.keep_cordons(CordonSource.COMMAND, ())
    assert world.journal.cordons() is None
    async with world.running():
        table = CordonTable(by_source={CordonSource.ANNOTATION: kept})
        assert world.journal.cordons() == table
        told = world.bus.latest(CordonTable)
        assert told is not None
        assert told.value == table


async def test_a_door_that_cannot_be_written_is_not_set(clock: FakeClock) -> None:
    """Not even where pods are admitted without a record: a person can ask again."""
    world = World(clock, Settings(journal=JournalSettings(on_failure="degrade")))
    async with world.running():
        world.store.failure = "no space left on device"
        with pytest.raises(JournalUnavailable, match="no space left"):
            await world.journal.set_allocation_mode(gpu("a"), AllocationMode.NONE)
        assert world.journal.doors() == {}
        world.store.failure = ""
        await anyio.sleep(2)
    assert world.durable().doors == {}


async def test_no_door_is_set_while_nobody_keeps_the_journal(world: World) -> None:
    """Before the start nobody knows, which is not the same as no door."""
    with pytest.raises(JournalUnavailable, match="starting or has failed"):
        await world.journal.set_allocation_mode(gpu("a"), AllocationMode.NONE)
    assert world.journal.doors() is None


async def test_a_fault_session_outlives_the_agent_under_its_number(world: World) -> None:
    """The numbers are of the journal's one sequence; before the journal is read nothing is said of sessions."""
    sessions = RepairSessions(world.journal, world.clock)
    async with world.running():
        await world.journal.record(GPU, device_ids("a"))
        opened = await sessions.keep_session(make_session(0))
        assert opened == make_session(2)
        closed = await sessions.keep_session(make_session(2, closed_seconds=world.clock.wall()))
    assert sessions.sessions() is None
    async with world.running():
        assert sessions.sessions() == {2: closed}
        assert sessions.read_boot() == world.journal.node.boot


async def test_an_upgrade_of_the_driver_outlives_the_agent_under_its_number(world: World) -> None:
    upgrades = DriverUpgrades(world.journal)
    async with world.running():
        begun = await upgrades.keep_upgrade(make_upgrade(number=0))
        assert begun == make_upgrade(number=1)
        gone_on = await upgrades.keep_upgrade(make_upgrade(UpgradePhase.UNLOAD))
    assert upgrades.upgrades() is None
    async with world.running():
        assert upgrades.upgrades() == {1: gone_on}
        # Nobody goes on with an upgrade where upgrades were switched off meanwhile.
        assert "driver-upgrade-left" in world.set_conditions()
        assert upgrades.read_boot() == world.journal.node.boot
