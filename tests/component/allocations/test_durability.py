"""What is written down before it is answered, and what becomes of it when the disk fails, on virtual time."""

import anyio
import anyio.lowlevel
import pytest

from nodeagent.components.allocations.journal_format import encode_records
from nodeagent.components.allocations.ledger import Opened
from nodeagent.components.allocations.roles.grants import Granted
from nodeagent.config.schema import Settings
from nodeagent.config.sections.plugin import JournalSettings
from nodeagent.model.errors import JournalUnavailable
from nodeagent.model.events import AllocationDiffered, AllocationRefused, DevicesAllocated
from tests.component.allocations.harness import World, told
from tests.support.allocations import GPU, device_ids, holding, listing, make_entry, pod_named
from tests.support.virtual_time import FakeClock

pytestmark = pytest.mark.virtual_time


async def test_an_allocation_is_durable_before_it_is_answered(world: World) -> None:
    """When `record` returns the journal holds it; everybody is told in the next turn of the loop."""
    async with world.running():
        allocation = await world.journal.record(GPU, device_ids("ab"))
        assert world.durable_devices() == ["a", "b"]
        await told()
        assert world.published() == {"a": "-", "b": "-"}
        assert world.facts(DevicesAllocated) == [
            DevicesAllocated(resource=GPU, devices=device_ids("ab"), number=allocation.number)
        ]


async def test_what_was_granted_is_told_before_what_follows(world: World) -> None:
    """Nobody hears of a refusal before the grants that came before it, nor of an end before the beginning."""
    async with world.running():
        await world.journal.record(GPU, device_ids("a"))
        await world.journal.record(GPU, device_ids("b"))
        world.store.failure = "disk full"
        with pytest.raises(JournalUnavailable):
            await world.journal.record(GPU, device_ids("c"))
        heard = [type(one) for one in world.facts(DevicesAllocated, AllocationRefused)]
        assert heard == [DevicesAllocated, DevicesAllocated, AllocationRefused]


async def test_a_grant_is_told_even_when_the_keeper_stops(world: World) -> None:
    """What the kubelet was told everybody is told, at the latest as the component ends."""
    async with world.running():
        await world.journal.record(GPU, device_ids("a"))
    assert len(world.facts(DevicesAllocated)) == 1


async def test_a_record_that_fails_changes_nothing(world: World) -> None:
    """The disk fails after the next ledger was worked out: the present one stays."""
    async with world.running():
        await world.journal.record(GPU, device_ids("a"))
        world.store.failure = "disk full"
        with pytest.raises(JournalUnavailable):
            await world.journal.record(GPU, device_ids("b"))
        await told()
        assert world.published() == {"a": "-"}
        assert world.durable_devices() == ["a"]


async def test_a_restarted_keeper_knows_what_the_last_one_wrote(world: World) -> None:
    """Allocations outlive the agent, and numbers go on."""
    async with world.running():
        first = await world.journal.record(GPU, device_ids("a"))
    assert not world.store.is_open
    async with world.running():
        second = await world.journal.record(GPU, device_ids("b"))
        await told()
        assert world.published() == {"a": "-", "b": "-"}
    assert second.number == first.number + 1


async def test_nobody_is_answered_while_nobody_keeps_the_journal(world: World) -> None:
    """Before the start and after the end an Allocate fails at once, and other questions have empty answers."""
    with pytest.raises(JournalUnavailable, match="starting or has failed"):
        await world.journal.record(GPU, device_ids("a"))
    await world.journal.identify(GPU, device_ids("a"))
    assert not world.journal.doubtful()
    assert world.journal.history == ()
    async with world.running():
        pass
    with pytest.raises(JournalUnavailable):
        await world.journal.record(GPU, device_ids("a"))


async def test_only_what_somebody_relies_on_is_synced(world: World) -> None:
    """An answer to the kubelet waits for the disk; what the kubelet says can be heard again."""
    async with world.running():
        await world.journal.record(GPU, device_ids("a"))
        assert world.store.synced
        world.kubelet.listing = listing(holding("train", "a"))
        await world.journal.identify(GPU, device_ids("a"))
        assert not world.store.synced


async def test_a_full_disk_refuses_and_heals(world: World) -> None:
    """While the journal cannot be written no pod is admitted; when it can be, everything goes on by itself."""
    async with world.running():
        await world.journal.record(GPU, device_ids("a"))
        world.store.failure = "no space left on device"
        with pytest.raises(JournalUnavailable, match="no space left"):
            await world.journal.record(GPU, device_ids("b"))
        assert world.published() == {"a": "-"}
        assert "journal-unavailable" in world.set_conditions()
        world.store.failure = ""
        await anyio.sleep(2)
        assert "journal-unavailable" not in world.set_conditions()
        await world.journal.record(GPU, device_ids("b"))
    assert world.durable_devices() == ["a", "b"]


async def test_no_container_starts_whose_name_is_not_written_down(world: World) -> None:
    """A restart would lose the name, and with it the only ground on which its devices can be defended."""
    async with world.running():
        await world.journal.record(GPU, device_ids("a"))
        await world.journal.record(GPU, device_ids("b"))
        world.kubelet.listing = listing(holding("train", "a"))
        await world.journal.identify(GPU, device_ids("a"))
        world.store.failure = "no space left on device"
        world.kubelet.listing = listing(holding("train", "a"), holding("infer", "b"))
        with pytest.raises(JournalUnavailable, match="no space left"):
            await world.journal.identify(GPU, device_ids("b"))
        world.kubelet.run_name = "second"
        await world.journal.identify(GPU, device_ids("a"))
        world.store.failure = ""
        await anyio.sleep(2)
        await world.journal.identify(GPU, device_ids("b"))
    assert world.durable().entries[2].allocation.pod == pod_named("infer")


async def test_an_allocate_right_after_the_disk_is_back_succeeds(world: World) -> None:
    """The next pod does not wait for the next look at the disk."""
    async with world.running():
        world.store.failure = "no space left on device"
        with pytest.raises(JournalUnavailable):
            await world.journal.record(GPU, device_ids("a"))
        world.store.failure = ""
        await world.journal.record(GPU, device_ids("b"))
        assert world.durable_devices() == ["b"]
        assert "journal-unavailable" not in world.set_conditions()


async def test_degraded_operation_admits_and_makes_up_for_it(clock: FakeClock) -> None:
    """Where configured, pods are admitted without a durable record, the condition says so, and the record follows."""
    world = World(clock, Settings(journal=JournalSettings(on_failure="degrade")))
    async with world.running():
        world.store.failure = "read-only file system"
        await world.journal.record(GPU, device_ids("a"))
        await told()
        assert world.published() == {"a": "-"}
        assert "journal-unavailable" in world.set_conditions()
        world.store.failure = ""
        await anyio.sleep(2)
        assert world.durable_devices() == ["a"]
        assert "journal-unavailable" not in world.set_conditions()


async def test_what_the_kubelet_says_is_kept_while_the_disk_fails(world: World) -> None:
    """Names and releases are learnt in memory and written when the disk is back."""
    async with world.running():
        await world.journal.record(GPU, device_ids("a"))
        world.store.failure = "input/output error"
        world.kubelet.listing = listing(holding("train", "a"))
        await anyio.sleep(12)
        assert world.published() == {"a": "train"}
        world.store.failure = ""
        await anyio.sleep(2)
    assert world.durable().entries[1].allocation.pod == pod_named("train")


async def test_an_agent_starts_although_its_disk_fails(world: World) -> None:
    """The rest of the node is served; the journal is begun when the disk is back."""
    world.store.failure = "read-only file system"
    async with world.running():
        assert "journal-unavailable" in world.set_conditions()
        world.store.failure = ""
        await anyio.sleep(2)
        await world.journal.record(GPU, device_ids("a"))
    assert world.durable_devices() == ["a"]


async def test_a_journal_that_cannot_be_opened_is_not_written_over(clock: FakeClock) -> None:
    """What the last agent left is read before anything is written, however late, and joined with what is new."""
    world = World(clock, Settings(journal=JournalSettings(on_failure="degrade")))
    async with world.running():
        await world.journal.record(GPU, device_ids("a"))
        await world.journal.record(GPU, device_ids("b"))
    world.store.failure = "input/output error"
    world.kubelet.listing = listing(holding("train", "a"))
    async with world.running():
        await world.journal.record(GPU, device_ids("c"))
        await told()
        assert world.published() == {"a": "train", "c": "-"}
        world.store.failure = ""
        await anyio.sleep(2)
        assert world.published() == {"a": "-", "b": "-", "c": "-"}
        await anyio.sleep(10)
        assert world.published() == {"a": "train", "b": "-", "c": "-"}
    assert sorted(world.durable().entries) == [1, 2, 3]


@pytest.mark.parametrize("may_set_aside", [True, False])
async def test_damage_is_set_aside_told_and_made_up_for(
    world: World, monkeypatch: pytest.MonkeyPatch, *, may_set_aside: bool
) -> None:
    """The state before the damage is used, the kubelet fills in the rest, and people are told."""
    opened, first = Opened(machine="machine", boot="boot"), Granted(entry=make_entry(1, "a", seen_by="first"))
    content = encode_records([opened, first, Granted(entry=make_entry(2, "b"))], 0)[0]
    world.store.current = content[:-1]
    world.kubelet.listing = listing(holding("train", "a"), holding("other", "b"))
    if not may_set_aside:

        async def fail(stamp: str) -> None:
            raise JournalUnavailable("/state", f"cannot keep {stamp}")

        monkeypatch.setattr(world.store, "set_aside", fail)
    async with world.running():
        assert world.published() == {"a": "train", "b": "other"}
        assert "journal-damaged" in world.set_conditions()
        assert [differed.kind for differed in world.facts(AllocationDiffered)] == ["missing"]
    assert world.store.set_aside_names == (["20260101T000000Z"] if may_set_aside else [])
    assert world.durable_devices() == ["a", "b"]


async def test_a_long_journal_is_begun_anew(clock: FakeClock) -> None:
    """The journal does not grow for ever, and beginning anew loses nothing."""
    world = World(clock, Settings(journal=JournalSettings(rotate_bytes=4096, history_entries=5)))
    async with world.running():
        began = world.store.begun
        for _ in range(100):
            await world.journal.record(GPU, device_ids("a"))
        assert world.store.begun > began
        assert world.store.size_bytes < 3 * 4096
    assert world.durable_devices() == ["a"]
    assert len(world.durable().history) <= 5 + 20


async def test_a_journal_is_begun_anew_between_pods(clock: FakeClock) -> None:
    """Half full is early enough to do it while nobody waits."""
    world = World(clock, Settings(journal=JournalSettings(rotate_bytes=4096, history_entries=0)))
    async with world.running():
        await anyio.sleep(0.5)
        began = world.store.begun
        while world.store.size_bytes <= 4096 / 2:
            await world.journal.record(GPU, device_ids("a"))
        assert world.store.begun == began
        await anyio.sleep(1)
        assert world.store.begun == began + 1
        await anyio.sleep(5)
        assert world.store.begun == began + 1
    assert world.durable_devices() == ["a"]


async def test_a_cancelled_call_leaves_journal_and_ledger_alike(world: World) -> None:
    """A kubelet that hangs up while the disk works neither tears the record nor parts it from the table."""
    async with world.running():
        world.store.append_seconds = 0.5
        with anyio.move_on_after(0.1):
            await world.journal.record(GPU, device_ids("a"))
        await anyio.sleep(1)
        await world.journal.record(GPU, device_ids("b"))
        await told()
        assert world.published() == {"a": "-", "b": "-"}
    assert world.durable_devices() == ["a", "b"]


async def test_what_is_under_way_to_a_slow_disk_is_waited_for(world: World) -> None:
    """Whoever comes while the disk works writes after it, also where the disk is fast by then."""
    async with world.running():
        world.store.append_seconds = 0.5
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(world.journal.record, GPU, device_ids("a"))
            await anyio.sleep(0.1)
            world.store.append_seconds = None
            tasks.start_soon(world.journal.record, GPU, device_ids("b"))
            await anyio.sleep(0.1)
            assert world.published() == {}
        assert world.published() == {"a": "-", "b": "-"}
    assert world.durable_devices() == ["a", "b"]


async def test_racing_calls_are_written_one_after_the_other(world: World) -> None:
    """Many admissions at once give each its own number and one sound journal."""
    got: list[int] = []

    async def ask(device: str) -> None:
        got.append((await world.journal.record(GPU, device_ids(device))).number)

    async with world.running():
        async with anyio.create_task_group() as tasks:
            for device in "abcdefgh":
                tasks.start_soon(ask, device)
        assert sorted(got) == list(range(1, 9))
    assert sorted(world.durable_devices()) == list("abcdefgh")


async def test_a_disk_that_is_nearly_full_is_told_of_before_a_pod_is_refused(world: World) -> None:
    """Within half a minute, and until there is room again; a disk that does not say is a word in the log."""
    async with world.running():
        await anyio.sleep(2)
        assert "state-directory-full" not in world.set_conditions()
        world.store.room = (4096, None)
        await anyio.sleep(31)
        assert "state-directory-full" in world.set_conditions()
        await world.journal.record(GPU, device_ids("a"))
        world.store.room = (1 << 40, 3)
        await anyio.sleep(31)
        assert "state-directory-full" in world.set_conditions()
        world.store.failure = "input/output error"
        await anyio.sleep(31)
        world.store.failure, world.store.room = "", (1 << 40, 1000)
        await anyio.sleep(31)
        assert "state-directory-full" not in world.set_conditions()


async def test_a_write_of_the_last_life_is_not_part_of_the_next(world: World) -> None:
    """A disk that answers late answers the life that asked: the next one begins with what the file has."""
    async with anyio.create_task_group() as tasks:
        async with world.running():
            await world.journal.record(GPU, device_ids("a"))
            world.store.append_seconds = 1.0
            tasks.start_soon(world.journal.record, GPU, device_ids("b"))
            await anyio.sleep(0.5)
        world.store.append_seconds = 0.001
        async with world.running():
            assert world.durable_devices() == ["a", "b"]
            assert world.journal.ledger.table == world.durable().table
            await world.journal.record(GPU, device_ids("c"))
            assert world.durable_devices() == ["a", "b", "c"]


async def test_a_writer_that_waited_for_the_last_life_is_refused(world: World) -> None:
    """What was decided by the ledger of a life that is over is not written by the next before it has recovered."""
    refused: list[JournalUnavailable] = []

    async def record(device: str) -> None:
        try:
            await world.journal.record(GPU, device_ids(device))
        except JournalUnavailable as error:
            refused.append(error)

    async with anyio.create_task_group() as tasks:
        async with world.running():
            world.store.append_seconds = 1.0
            tasks.start_soon(record, "a")
            tasks.start_soon(record, "b")
            await anyio.sleep(0.5)
    assert [one.reason for one in refused] == ["the part that keeps it is starting or has failed: try again"]
    assert world.durable_devices() == ["a"]
