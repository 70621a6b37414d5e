"""The keeper of allocations with a disk and a kubelet round it, on virtual time."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import anyio
import anyio.lowlevel
import pytest

from nodeagent.components.allocations.book import Node
from nodeagent.components.allocations.component import Allocations
from nodeagent.components.allocations.door import JournalDoor
from nodeagent.components.allocations.journal import encode_records, parse_journal
from nodeagent.components.allocations.ledger import Granted, Ledger, Opened, replay
from nodeagent.config.live import LiveSettings
from nodeagent.config.schema import Settings
from nodeagent.config.sections.plugin import DevicePluginSettings, JournalSettings
from nodeagent.kernel.bus import Bus
from nodeagent.kernel.conditions import Conditions
from nodeagent.model.allocation import Allocation, AllocationTable, PodIdentity
from nodeagent.model.conditions import CATALOGUE
from nodeagent.model.errors import DeviceHeld, JournalUnavailable
from nodeagent.model.events import AllocationDiffered, AllocationRefused, DevicesAllocated, DevicesFreed
from nodeagent.model.ports import ContainerDevices, KubeletCheckpoint, PodListing
from tests.fakes.journal_store import FakeKubelet, FakeStore
from tests.support.allocations import GPU, device_ids, holding, listing, make_entry, pod_named
from tests.support.virtual_time import FakeClock
from tests.support.waiting import settled

pytestmark = [pytest.mark.anyio, pytest.mark.virtual_time]

NODE = Node("machine", "boot")


class World:
    """Everything round one keeper, which may be started again and again."""

    def __init__(self, clock: FakeClock, settings: Settings | None = None) -> None:
        self.clock = clock
        self.store, self.kubelet = FakeStore(), FakeKubelet()
        self.live = LiveSettings(settings or Settings())
        self.door = JournalDoor("/state/allocations.journal")
        self.bus = Bus(clock)
        self.conditions = Conditions(self.bus, clock, CATALOGUE)

    @asynccontextmanager
    async def running(self) -> AsyncIterator[Allocations]:
        keeper = Allocations(
            self.bus,
            self.conditions,
            self.clock,
            self.live,
            self.kubelet,
            store=self.store,
            door=self.door,
            node=NODE,
        )
        async with anyio.create_task_group() as tasks:
            await tasks.start(lambda task_status: keeper.run(task_status=task_status))
            yield keeper
            tasks.cancel_scope.cancel()

    def published(self) -> dict[str, str]:
        """Device to pod, `-` where the pod is not known, with `!` where it is forgotten."""
        envelope = self.bus.latest(AllocationTable)
        assert envelope is not None
        return {
            device.removeprefix("GPU-"): (allocation.pod.name if allocation.pod else "-")
            + ("!" if allocation.forgotten else "")
            for allocation in envelope.value.allocations
            for device in allocation.devices
        }

    def facts(self, kind: type) -> list[Any]:
        return [envelope.value for envelope in self.bus.history() if isinstance(envelope.value, kind)]

    def set_conditions(self) -> set[str]:
        return {condition.code for condition in self.conditions.all_set()}

    def durable(self) -> Ledger:
        parsed = parse_journal(self.store.current or b"")
        assert not parsed.damage
        return replay(parsed.records, 1000)

    def durable_devices(self) -> list[str]:
        return [device.removeprefix("GPU-") for entry in self.durable().entries.values() for device in entry.devices]


@pytest.fixture(params=[None, 0.001], ids=["fast disk", "slow disk"])
def world(clock: FakeClock, request: pytest.FixtureRequest) -> World:
    world = World(clock)
    world.store.append_seconds = request.param
    return world


async def test_an_allocation_is_durable_before_it_is_answered(world: World) -> None:
    """When `record` returns the journal holds it, and everybody is told."""
    async with world.running():
        allocation = await settled(world.door.record(GPU, device_ids("ab")))
        assert world.durable_devices() == ["a", "b"]
        assert world.published() == {"a": "-", "b": "-"}
        assert world.facts(DevicesAllocated) == [
            DevicesAllocated(resource=GPU, devices=device_ids("ab"), number=allocation.number)
        ]


async def test_a_restarted_keeper_knows_what_the_last_one_wrote(world: World) -> None:
    """Allocations outlive the agent, and numbers go on."""
    async with world.running():
        first = await settled(world.door.record(GPU, device_ids("a")))
    assert not world.store.is_open
    async with world.running():
        second = await settled(world.door.record(GPU, device_ids("b")))
        assert world.published() == {"a": "-", "b": "-"}
    assert second.number == first.number + 1


async def test_nobody_is_answered_while_nobody_keeps_the_journal(world: World) -> None:
    """Before the start and after the end an Allocate fails at once, and other questions have empty answers."""
    with pytest.raises(JournalUnavailable, match="starting or has failed"):
        await settled(world.door.record(GPU, device_ids("a")))
    await world.door.identify(GPU, device_ids("a"))
    assert not world.door.doubtful()
    assert world.door.history == ()
    async with world.running():
        pass
    with pytest.raises(JournalUnavailable):
        await settled(world.door.record(GPU, device_ids("a")))


async def test_identity_is_learnt_when_the_container_starts(world: World) -> None:
    """One question names the holder; a second start of the same container needs none."""
    async with world.running():
        await settled(world.door.record(GPU, device_ids("a")))
        world.kubelet.listing = listing(holding("train", "a"))
        asked = world.kubelet.lists_asked
        await anyio.sleep(0.01)
        await world.door.identify(GPU, device_ids("a"))
        await world.door.identify(GPU, device_ids("a"))
        assert world.published() == {"a": "train"}
        assert world.kubelet.lists_asked == asked + 1
    assert world.durable().entries[1].allocation.pod == pod_named("train")


async def test_only_what_somebody_relies_on_is_synced(world: World) -> None:
    """An answer to the kubelet waits for the disk; what the kubelet says can be heard again."""
    async with world.running():
        await settled(world.door.record(GPU, device_ids("a")))
        assert world.store.synced
        world.kubelet.listing = listing(holding("train", "a"))
        await world.door.identify(GPU, device_ids("a"))
        assert not world.store.synced


async def test_a_silent_kubelet_is_not_in_the_way_of_a_start(world: World) -> None:
    """A list that cannot be had changes nothing, fails nobody, and is a condition until it is back."""
    async with world.running():
        await settled(world.door.record(GPU, device_ids("a")))
        world.kubelet.listing = None
        await world.door.identify(GPU, device_ids("a"))
        assert "pod-resources-unavailable" in world.set_conditions()
        world.kubelet.listing = listing(holding("train", "a"))
        await anyio.sleep(11)
        assert "pod-resources-unavailable" not in world.set_conditions()
        assert world.published() == {"a": "train"}


async def test_a_list_that_never_comes_ends_in_time(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    """A kubelet that hangs costs the call's time limit, no more."""

    async def hang() -> PodListing:
        await anyio.sleep_forever()
        raise AssertionError

    async with world.running():
        monkeypatch.setattr(world.kubelet, "read_pods", hang)
        began = anyio.current_time()
        await world.door.identify(GPU, device_ids("a"))
        assert anyio.current_time() - began == pytest.approx(world.live.now.kubelet.call_timeout_seconds)


async def test_devices_of_a_finished_pod_are_freed_by_polling(world: World) -> None:
    """The kubelet sends no word of a release; two lists without the pod, half a minute apart, are one."""
    async with world.running():
        await settled(world.door.record(GPU, device_ids("a")))
        world.kubelet.listing = listing(holding("train", "a"))
        await anyio.sleep(11)
        world.kubelet.listing = listing()
        await anyio.sleep(25)
        assert world.published() == {"a": "train"}
        await anyio.sleep(25)
        assert world.published() == {}
        assert [freed.devices for freed in world.facts(DevicesFreed)] == [device_ids("a")]
        assert [ended.allocation.devices for ended in world.door.history] == [device_ids("a")]
    assert world.durable_devices() == []


async def held_by_an_earlier_run(world: World) -> None:
    """A pod holds a device, the kubelet restarts and has lost its memory."""
    await settled(world.door.record(GPU, device_ids("a")))
    world.kubelet.listing = listing(holding("train", "a"))
    await anyio.sleep(11)
    world.kubelet.run_name, world.kubelet.run_since_seconds = "second", world.clock.wall()
    world.kubelet.listing = listing(pods=["train"])


async def test_a_forgetful_kubelet_is_refused_a_held_device(world: World) -> None:
    """The device of a living pod is not given away a second time, and is told as doubtful before."""
    async with world.running():
        await held_by_an_earlier_run(world)
        assert world.door.doubtful() == set(device_ids("a"))
        with pytest.raises(DeviceHeld, match="held by team/train"):
            await settled(world.door.record(GPU, device_ids("ab")))
        assert [refused.devices for refused in world.facts(AllocationRefused)] == [device_ids("ab")]
        await settled(world.door.record(GPU, device_ids("b")))
        await anyio.sleep(22)
        assert world.published() == {"a": "train!", "b": "-"}
        assert "allocations-differ" in world.set_conditions()
        assert [differed.kind for differed in world.facts(AllocationDiffered)] == ["forgotten"]
    assert world.durable_devices() == ["a", "b"]


async def test_the_refusal_can_be_switched_off(clock: FakeClock) -> None:
    """Who trusts the kubelet more than the journal says so in the configuration."""
    world = World(clock, Settings(device_plugin=DevicePluginSettings(refuse_held_devices=False)))
    async with world.running():
        await held_by_an_earlier_run(world)
        await settled(world.door.record(GPU, device_ids("a")))


async def test_a_kubelet_that_remembers_is_trusted(world: World) -> None:
    """After a restart that lost nothing devices of finished pods are handed out without a question."""
    async with world.running():
        await held_by_an_earlier_run(world)
        world.kubelet.listing = listing(holding("train", "a"))
        await anyio.sleep(2)
        assert not world.door.doubtful()
        asked = world.kubelet.lists_asked
        await settled(world.door.record(GPU, device_ids("a")))
        assert world.kubelet.lists_asked == asked
        assert world.published() == {"a": "-"}


async def test_a_full_disk_refuses_and_heals(world: World) -> None:
    """While the journal cannot be written no pod is admitted; when it can be, everything goes on by itself."""
    async with world.running():
        await settled(world.door.record(GPU, device_ids("a")))
        world.store.failure = "no space left on device"
        with pytest.raises(JournalUnavailable, match="no space left"):
            await settled(world.door.record(GPU, device_ids("b")))
        assert world.published() == {"a": "-"}
        assert "journal-unavailable" in world.set_conditions()
        world.store.failure = ""
        await anyio.sleep(2)
        assert "journal-unavailable" not in world.set_conditions()
        await settled(world.door.record(GPU, device_ids("b")))
    assert world.durable_devices() == ["a", "b"]


async def test_no_container_starts_whose_name_is_not_written_down(world: World) -> None:
    """A restart would lose the name, and with it the only ground on which its devices can be defended."""
    async with world.running():
        await settled(world.door.record(GPU, device_ids("a")))
        await settled(world.door.record(GPU, device_ids("b")))
        world.kubelet.listing = listing(holding("train", "a"))
        await world.door.identify(GPU, device_ids("a"))
        world.store.failure = "no space left on device"
        world.kubelet.listing = listing(holding("train", "a"), holding("infer", "b"))
        with pytest.raises(JournalUnavailable, match="no space left"):
            await world.door.identify(GPU, device_ids("b"))
        world.kubelet.run_name = "second"
        await world.door.identify(GPU, device_ids("a"))
        world.store.failure = ""
        await anyio.sleep(2)
        await world.door.identify(GPU, device_ids("b"))
    assert world.durable().entries[2].allocation.pod == pod_named("infer")


async def test_an_allocate_right_after_the_disk_is_back_succeeds(world: World) -> None:
    """The next pod does not wait for the next look at the disk."""
    async with world.running():
        world.store.failure = "no space left on device"
        with pytest.raises(JournalUnavailable):
            await settled(world.door.record(GPU, device_ids("a")))
        world.store.failure = ""
        await settled(world.door.record(GPU, device_ids("b")))
        assert world.durable_devices() == ["b"]
        assert "journal-unavailable" not in world.set_conditions()


async def test_degraded_operation_admits_and_makes_up_for_it(clock: FakeClock) -> None:
    """Where configured, pods are admitted without a durable record, the condition says so, and the record follows."""
    world = World(clock, Settings(journal=JournalSettings(on_failure="degrade")))
    async with world.running():
        world.store.failure = "read-only file system"
        await settled(world.door.record(GPU, device_ids("a")))
        assert world.published() == {"a": "-"}
        assert "journal-unavailable" in world.set_conditions()
        world.store.failure = ""
        await anyio.sleep(2)
        assert world.durable_devices() == ["a"]
        assert "journal-unavailable" not in world.set_conditions()


async def test_what_the_kubelet_says_is_kept_while_the_disk_fails(world: World) -> None:
    """Names and releases are learnt in memory and written when the disk is back."""
    async with world.running():
        await settled(world.door.record(GPU, device_ids("a")))
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
        await settled(world.door.record(GPU, device_ids("a")))
    assert world.durable_devices() == ["a"]


async def test_a_journal_that_cannot_be_opened_is_not_written_over(clock: FakeClock) -> None:
    """What the last agent left is read before anything is written, however late, and joined with what is new."""
    world = World(clock, Settings(journal=JournalSettings(on_failure="degrade")))
    async with world.running():
        await settled(world.door.record(GPU, device_ids("a")))
        await settled(world.door.record(GPU, device_ids("b")))
    world.store.failure = "input/output error"
    world.kubelet.listing = listing(holding("train", "a"))
    async with world.running():
        await settled(world.door.record(GPU, device_ids("c")))
        assert world.published() == {"a": "train", "c": "-"}
        world.store.failure = ""
        await anyio.sleep(2)
        assert world.published() == {"a": "-", "b": "-", "c": "-"}
        await anyio.sleep(10)
        assert world.published() == {"a": "train", "b": "-", "c": "-"}
    assert sorted(world.durable().entries) == [1, 2, 3]


async def test_nothing_in_the_way_is_not_refused(world: World) -> None:
    """A holder whose kubelet remembers it after all is no reason to refuse."""
    async with world.running():
        await held_by_an_earlier_run(world)
        world.kubelet.listing = listing(holding("other", "a"))
        await settled(world.door.record(GPU, device_ids("a")))
        assert world.published() == {"a": "-"}


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


async def test_the_checkpoint_helps_where_the_kubelet_is_silent(world: World) -> None:
    """An agent that starts before the kubelet answers steers clear of what the kubelet wrote down."""
    world.kubelet.listing = None
    uid = PodIdentity(namespace="", name="", uid="u-1")
    world.kubelet.checkpoint = KubeletCheckpoint(
        containers=(ContainerDevices(pod=uid, container="main", resource=GPU, devices=device_ids("a")),)
    )
    async with world.running():
        assert world.door.doubtful() == set(device_ids("a"))
        world.kubelet.listing = listing(holding("train", "a"))
        await anyio.sleep(11)
        assert world.published() == {"a": "train"}
        assert not world.door.doubtful()


async def test_a_node_without_a_kubelet_has_an_empty_table(world: World) -> None:
    """Nobody to ask is no failure."""
    world.kubelet.is_down = True
    async with world.running():
        await anyio.sleep(30)
        await settled(world.door.record(GPU, device_ids("a")))
        assert world.published() == {"a": "-"}
        assert world.kubelet.lists_asked == 0


async def test_a_long_journal_is_begun_anew(clock: FakeClock) -> None:
    """The journal does not grow for ever, and beginning anew loses nothing."""
    world = World(clock, Settings(journal=JournalSettings(rotate_bytes=4096, history_entries=5)))
    async with world.running():
        began = world.store.begun
        for _ in range(100):
            await settled(world.door.record(GPU, device_ids("a")))
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
            await settled(world.door.record(GPU, device_ids("a")))
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
            await settled(world.door.record(GPU, device_ids("a")))
        await anyio.sleep(1)
        await settled(world.door.record(GPU, device_ids("b")))
        assert world.published() == {"a": "-", "b": "-"}
    assert world.durable_devices() == ["a", "b"]


async def test_what_is_under_way_to_a_slow_disk_is_waited_for(world: World) -> None:
    """Whoever comes while the disk works writes after it, also where the disk is fast by then."""
    async with world.running():
        world.store.append_seconds = 0.5
        first = world.door.record(GPU, device_ids("a"))
        world.store.append_seconds = None
        second = world.door.record(GPU, device_ids("b"))
        assert world.published() == {}
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(settled, second)
            await anyio.lowlevel.checkpoint()
            tasks.start_soon(settled, first)
        assert world.published() == {"a": "-", "b": "-"}
    assert world.durable_devices() == ["a", "b"]


async def test_a_fast_disk_is_not_waited_for(world: World) -> None:
    """Where nothing has to be awaited, the allocation is there when `record` returns."""
    world.store.append_seconds = None
    async with world.running():
        allocation = world.door.record(GPU, device_ids("a"))
        assert isinstance(allocation, Allocation)
        assert world.durable_devices() == ["a"]


async def test_racing_calls_are_written_one_after_the_other(world: World) -> None:
    """Many admissions at once give each its own number and one sound journal."""
    got: list[Allocation] = []

    async def ask(device: str) -> None:
        got.append(await settled(world.door.record(GPU, device_ids(device))))

    async with world.running():
        async with anyio.create_task_group() as tasks:
            for device in "abcdefgh":
                tasks.start_soon(ask, device)
        assert sorted(allocation.number for allocation in got) == list(range(1, 9))
    assert sorted(world.durable_devices()) == list("abcdefgh")
