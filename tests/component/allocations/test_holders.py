"""Who holds a device, as the kubelet tells it or fails to, on virtual time."""

import anyio
import pytest

from nodeagent.config.schema import Settings
from nodeagent.config.sections.plugin import DevicePluginSettings
from nodeagent.model.allocation import PodIdentity
from nodeagent.model.errors import DeviceHeld
from nodeagent.model.events import AllocationDiffered, AllocationRefused, DevicesAllocated, DevicesFreed
from nodeagent.model.ports import ContainerDevices, KubeletCheckpoint, PodListing
from tests.component.allocations.harness import World, held_by_an_earlier_run, told
from tests.support.allocations import GPU, device_ids, holding, listing, pod_named
from tests.support.virtual_time import FakeClock

pytestmark = pytest.mark.virtual_time


async def test_identity_is_learnt_when_the_container_starts(world: World) -> None:
    """One question names the holder; a second start of the same container needs none."""
    async with world.running():
        await world.journal.record(GPU, device_ids("a"))
        world.kubelet.listing = listing(holding("train", "a"))
        asked = world.kubelet.lists_asked
        await anyio.sleep(0.01)
        await world.journal.identify(GPU, device_ids("a"))
        await world.journal.identify(GPU, device_ids("a"))
        assert world.published() == {"a": "train"}
        assert world.kubelet.lists_asked == asked + 1
    assert world.durable().entries[1].allocation.pod == pod_named("train")


async def test_a_silent_kubelet_is_not_in_the_way_of_a_start(world: World) -> None:
    """A list that cannot be had changes nothing, fails nobody, and is a condition until it is back."""
    async with world.running():
        await world.journal.record(GPU, device_ids("a"))
        world.kubelet.listing = None
        await world.journal.identify(GPU, device_ids("a"))
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
        await world.journal.identify(GPU, device_ids("a"))
        assert anyio.current_time() - began == pytest.approx(world.live.now.kubelet.call_timeout_seconds)


async def test_devices_of_a_finished_pod_are_freed_by_polling(world: World) -> None:
    """The kubelet sends no word of a release; two lists without the pod, half a minute apart, are one."""
    async with world.running():
        await world.journal.record(GPU, device_ids("a"))
        world.kubelet.listing = listing(holding("train", "a"))
        await anyio.sleep(11)
        world.kubelet.listing = listing()
        await anyio.sleep(25)
        assert world.published() == {"a": "train"}
        await anyio.sleep(25)
        assert world.published() == {}
        assert [freed.devices for freed in world.facts(DevicesFreed)] == [device_ids("a")]
        assert [ended.allocation.devices for ended in world.journal.history] == [device_ids("a")]
    assert world.durable_devices() == []


async def test_a_forgetful_kubelet_is_refused_a_held_device(world: World) -> None:
    """The device of a living pod is not given away a second time, and is told as doubtful before."""
    async with world.running():
        await held_by_an_earlier_run(world)
        assert world.journal.doubtful() == set(device_ids("a"))
        with pytest.raises(DeviceHeld, match="held by team/train"):
            await world.journal.record(GPU, device_ids("ab"))
        assert [refused.devices for refused in world.facts(AllocationRefused)] == [device_ids("ab")]
        await world.journal.record(GPU, device_ids("b"))
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
        await world.journal.record(GPU, device_ids("a"))


async def test_a_kubelet_that_remembers_is_trusted(world: World) -> None:
    """After a restart that lost nothing devices of finished pods are handed out without a question."""
    async with world.running():
        await held_by_an_earlier_run(world)
        world.kubelet.listing = listing(holding("train", "a"))
        await anyio.sleep(2)
        assert not world.journal.doubtful()
        asked = world.kubelet.lists_asked
        await world.journal.record(GPU, device_ids("a"))
        assert world.kubelet.lists_asked == asked
        await told()
        assert world.published() == {"a": "-"}


async def test_nothing_in_the_way_is_not_refused(world: World) -> None:
    """A holder whose kubelet remembers it after all is no reason to refuse."""
    async with world.running():
        await held_by_an_earlier_run(world)
        world.kubelet.listing = listing(holding("other", "a"))
        granted = await world.journal.record(GPU, device_ids("a"))
        await told()
        assert world.facts(DevicesAllocated)[-1].number == granted.number


async def test_the_checkpoint_helps_where_the_kubelet_is_silent(world: World) -> None:
    """An agent that starts before the kubelet answers steers clear of what the kubelet wrote down."""
    world.kubelet.listing = None
    uid = PodIdentity(namespace="", name="", uid="u-1")
    world.kubelet.checkpoint = KubeletCheckpoint(
        containers=(ContainerDevices(pod=uid, container="main", resource=GPU, devices=device_ids("a")),)
    )
    async with world.running():
        assert world.journal.doubtful() == set(device_ids("a"))
        world.kubelet.listing = listing(holding("train", "a"))
        await anyio.sleep(11)
        assert world.published() == {"a": "train"}
        assert not world.journal.doubtful()


async def test_a_node_without_a_kubelet_has_an_empty_table(world: World) -> None:
    """Nobody to ask is no failure."""
    world.kubelet.is_down = True
    async with world.running():
        await anyio.sleep(30)
        await world.journal.record(GPU, device_ids("a"))
        await told()
        assert world.published() == {"a": "-"}
        assert world.kubelet.lists_asked == 0


async def test_pods_that_come_or_go_are_looked_at_soon(world: World) -> None:
    """A second after the kubelet's word; nothing is asked meanwhile, and a quiet kubelet is polled as ever."""
    world.pods.is_served = True
    async with world.running():
        await world.journal.record(GPU, device_ids("a"))
        await anyio.sleep(2)
        asked = world.kubelet.lists_asked
        world.kubelet.listing = listing(holding("train", "a"))
        await anyio.sleep(3)
        assert world.kubelet.lists_asked == asked
        world.pods.tell(pod_named("train"))
        await anyio.sleep(1.5)
        assert world.published() == {"a": "train"}
        assert world.kubelet.lists_asked == asked + 1
        await anyio.sleep(10)
        assert world.kubelet.lists_asked == asked + 2


async def test_the_end_of_a_pod_frees_its_devices(world: World) -> None:
    """Within two seconds of the kubelet's word, where a device that is in no list else waits half a minute."""
    world.pods.is_served = True
    async with world.running():
        await world.journal.record(GPU, device_ids("a"))
        await world.journal.record(GPU, device_ids("b"))
        world.kubelet.listing = listing(holding("train", "a"), holding("other", "b"))
        world.pods.tell(pod_named("train"), pod_named("other"))
        await anyio.sleep(2)
        world.kubelet.listing = listing()
        world.pods.tell(pod_named("other"))
        await anyio.sleep(2)
        assert world.published() == {"b": "other"}
        world.pods.is_served = False
        world.pods.tell()
        await anyio.sleep(15)
        assert world.published() == {"b": "other"}, "a kubelet that is silent about pods has not told their end"


async def test_a_kubelet_that_tells_of_no_pods_is_polled(world: World) -> None:
    """It is asked for the stream again with growing pauses; once it serves it, each change counts."""
    async with world.running():
        await anyio.sleep(600)
        assert 8 <= world.pods.followed <= 30
        world.pods.is_served = True
        await anyio.sleep(60)
        followed = world.pods.followed
        world.pods.is_served = False
        world.pods.tell()
        await anyio.sleep(61)
        assert world.pods.followed > followed
