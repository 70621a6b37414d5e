"""A claim's MIG device is there when it was asked for and gone when it is done with, and nobody beside it feels it."""

import anyio
import pytest

from nodeagent.components.mig.apply import SEEN_SECONDS
from nodeagent.model.claims import ReadyClaims
from nodeagent.model.errors import ControlRefused, GpuError, JournalUnavailable, PartitionRefused
from nodeagent.model.events import GpuSeenStale
from nodeagent.model.gpu import Gpu
from nodeagent.model.ids import GpuUuid
from nodeagent.model.journal import PreparedClaim, PreparedDevice, Step
from nodeagent.model.mig import PartitionRequest, Write, WriteKind
from nodeagent.rules.mig.single import OWNER, Holding, plan_removal
from tests.component.mig.harness import World
from tests.support.virtual_time import FakeClock

pytestmark = pytest.mark.virtual_time

CLAIM, OTHER = "claim-1/gpu-0", "claim-2/gpu-0"


def request_for(gpu: Gpu, profile: str = "1g.10gb", start: int = 2) -> PartitionRequest:
    return PartitionRequest(gpu=gpu.uuid, profile=profile, start=start)


async def ready(world: World) -> Gpu:
    """The first GPU, once devices can be made."""
    for _ in range(100):
        if world.list_partitions() is not None:
            break
        await anyio.sleep(0.1)
    return (await world.look()).gpus[0]


async def test_a_device_is_made_and_taken_away(clock: FakeClock) -> None:
    """MIG comes with the first and goes with the last; asked again, the answer is the same."""
    world = World(clock)
    async with world.running():
        gpu = await ready(world)
        made = await world.partitions.get().make_partition(CLAIM, request_for(gpu))
        assert (made.profile, made.placement_start, made.parent) == ("1g.10gb", 2, gpu.uuid)
        assert await world.partitions.get().make_partition(CLAIM, request_for(gpu)) == made
        second = await world.partitions.get().make_partition(OTHER, request_for(gpu, "3g.40gb", 4))
        assert world.list_partitions() == {CLAIM: request_for(gpu), OTHER: request_for(gpu, "3g.40gb", 4)}
        assert (await world.profiles())[:2] == [["1g.10gb", "3g.40gb"], ["whole"]]
        await world.partitions.get().remove_partition(CLAIM)
        await world.partitions.get().remove_partition(CLAIM)
        assert [device.uuid for device in (await world.look()).gpus[0].mig_devices] == [second.uuid]
        await world.partitions.get().remove_partition(OTHER)
        assert (await world.profiles())[0] == ["whole"]
        assert world.list_partitions() == {}
        assert world.book.ended == ["done", "done"]
        assert not world.state.changes


async def test_a_gpu_that_somebody_else_has_cut_is_looked_at_at_once(clock: FakeClock) -> None:
    """A pod does not wait for the next look at all GPUs, which nobody may ask for while its call is under way."""
    world = World(clock)
    async with world.running():
        gpu = await ready(world)
        await world.gpus.write_partition(gpu.uuid, Write(kind=WriteKind.MODE_ON))
        await world.gpus.write_partition(gpu.uuid, Write(kind=WriteKind.RESET))
        with anyio.fail_after(SEEN_SECONDS / 2):
            made = await world.partitions.get().make_partition(CLAIM, request_for(gpu))
        assert made.parent == gpu.uuid
        assert [fact.gpu for fact in world.facts(GpuSeenStale)] == [gpu.uuid]


async def test_what_lies_beside_it_is_never_touched(clock: FakeClock) -> None:
    """Neither for want of room nor on the way back; a GPU that was cut before keeps its mode."""
    world = World(clock, "a100-80gb-mig")
    async with world.running():
        gpu = await ready(world)
        before = (await world.look()).gpus[0].mig_devices
        with pytest.raises(ControlRefused, match=r"there is no room for 7g\.80gb at slot 0: GPU instance"):
            await world.partitions.get().make_partition(CLAIM, request_for(gpu, "7g.80gb", 0))
        with pytest.raises(ControlRefused, match=r"it has no profile 1g\.5gb"):
            await world.partitions.get().make_partition(CLAIM, request_for(gpu, "1g.5gb", 0))
        assert (await world.look()).gpus[0].mig_devices == before
        assert world.list_partitions() == {}


async def test_mig_is_not_switched_on_for_it_while_somebody_has_the_gpu(clock: FakeClock) -> None:
    """Whoever has the GPU is named, and keeps it."""
    world = World(clock)
    async with world.running():
        gpu = await ready(world)
        world.hold(gpu.uuid)
        with pytest.raises(ControlRefused, match=r"GPU 0 is used by ns/train-0 \(main\)"):
            await world.partitions.get().make_partition(CLAIM, request_for(gpu))
        world.hold()
        await world.partitions.get().make_partition(CLAIM, request_for(gpu))


async def test_mig_is_not_switched_on_for_it_while_a_claim_has_the_gpu(clock: FakeClock) -> None:
    """Whole, as the driver of claims has given it."""
    world = World(clock)
    async with world.running():
        gpu = await ready(world)
        device = PreparedDevice(requests=("gpu",), pool="n", device="gpu-0", uuid=gpu.uuid, gpu=gpu.uuid)
        claim = PreparedClaim(uid="u", namespace="ml", name="whole", devices=(device,), since_seconds=0.0)
        world.bus.publish_state(ReadyClaims(claims={"u": claim}), source="allocations")
        with pytest.raises(ControlRefused, match="GPU 0 is used by claim ml/whole"):
            await world.partitions.get().make_partition(CLAIM, request_for(gpu))


@pytest.mark.parametrize("kind", ["mode-on", "create", "create-compute"])
async def test_a_device_that_cannot_be_made_leaves_nothing(clock: FakeClock, kind: str) -> None:
    """The driver's word is the answer, and the next attempt is free to succeed."""
    world = World(clock)
    async with world.running():
        gpu = await ready(world)
        await world.gpus.inject("mig-refuse", [kind])
        with pytest.raises(PartitionRefused, match="unknown error"):
            await world.partitions.get().make_partition(CLAIM, request_for(gpu))
        assert (await world.profiles())[0] == ["whole"]
        assert world.list_partitions() == {}
        await world.gpus.inject("mig-refuse", ["none"])
        await world.partitions.get().make_partition(CLAIM, request_for(gpu))


async def test_what_cannot_be_taken_back_stays_known(clock: FakeClock) -> None:
    """It is told as half way, and goes when the driver lets it."""
    world = World(clock)
    async with world.running():
        gpu = await ready(world)
        await world.gpus.inject("mig-refuse", ["create-compute"])
        await world.gpus.inject("mig-refuse", ["destroy", "99"])
        with pytest.raises(PartitionRefused):
            await world.partitions.get().make_partition(CLAIM, request_for(gpu))
        assert "mig-half-way" in world.codes()
        assert world.list_partitions() == {CLAIM: request_for(gpu)}
        await world.gpus.inject("mig-refuse", ["none"])
        await world.partitions.get().remove_partition(CLAIM)
        assert (await world.profiles())[0] == ["whole"]
        assert not world.codes()


async def test_a_device_that_is_used_stays(clock: FakeClock) -> None:
    """Whoever asks too early asks again."""
    world = World(clock)
    async with world.running():
        gpu = await ready(world)
        made = await world.partitions.get().make_partition(CLAIM, request_for(gpu))
        world.gpus.set_holders({made.uuid: "pod"})
        await anyio.sleep(5)
        with pytest.raises(PartitionRefused, match="in use"):
            await world.partitions.get().remove_partition(CLAIM)
        assert await world.partitions.get().make_partition(CLAIM, request_for(gpu)) == made
        world.gpus.set_holders({})
        await anyio.sleep(1)
        await world.partitions.get().remove_partition(CLAIM)
        assert (await world.profiles())[0] == ["whole"]


async def test_that_mig_stays_on_keeps_nobody_waiting(clock: FakeClock) -> None:
    """The device is gone, which was asked for."""
    world = World(clock)
    async with world.running():
        gpu = await ready(world)
        await world.partitions.get().make_partition(CLAIM, request_for(gpu))
        await world.gpus.inject("mig-refuse", ["mode-off"])
        await world.partitions.get().remove_partition(CLAIM)
        assert (await world.profiles())[0] == []
        assert world.list_partitions() == {}


@pytest.mark.parametrize("step", range(1, 8))
async def test_whoever_is_killed_leaves_all_or_nothing(clock: FakeClock, step: int) -> None:
    """Killed at any step of making it or of taking it away; what was told as made is there, all else is gone."""
    world = World(clock)
    world.book.kill_at = step
    told = False
    gpu: Gpu | None = None
    async with world.running():
        gpu = await ready(world)
        await world.partitions.get().make_partition(CLAIM, request_for(gpu))
        told = True
        await world.partitions.get().remove_partition(CLAIM)
    assert gpu is not None
    world.book.kill_at = 0
    async with world.running():
        await ready(world)
        held = world.list_partitions()
        assert held in ({}, {CLAIM: request_for(gpu)})
        assert (await world.profiles())[0] == (["1g.10gb"] if held else ["whole"])
        assert not (told and step < 5 and not held)
        await world.partitions.get().make_partition(CLAIM, request_for(gpu))
        await world.partitions.get().remove_partition(CLAIM)
        assert (await world.profiles())[0] == ["whole"]
        assert not world.book.under_way


async def test_a_boot_takes_devices_and_the_next_question_brings_them_back(clock: FakeClock) -> None:
    """Under the same key."""
    world = World(clock)
    async with world.running():
        gpu = await ready(world)
        made = await world.partitions.get().make_partition(CLAIM, request_for(gpu))
        async with world.gpus.begin() as session:
            boot = Holding(number=0, key="", request=request_for(gpu), has_created=True)
            for write in plan_removal(boot, await session.read(gpu), []):
                await session.write(gpu, write)
        await world.look()
        again = await world.partitions.get().make_partition(CLAIM, request_for(gpu))
        assert (again.profile, again.placement_start) == (made.profile, made.placement_start)


async def test_a_key_has_one_device(clock: FakeClock) -> None:
    """Another wish under the same key is a mistake of whoever asks."""
    world = World(clock)
    async with world.running():
        gpu = await ready(world)
        await world.partitions.get().make_partition(CLAIM, request_for(gpu))
        with pytest.raises(ControlRefused, match=r"has 1g\.10gb at slot 2"):
            await world.partitions.get().make_partition(CLAIM, request_for(gpu, start=3))


async def test_a_journal_that_fails_lets_nothing_begin(clock: FakeClock) -> None:
    """Nothing that is not written down is done."""
    world = World(clock)
    async with world.running():
        gpu = await ready(world)
        world.book.breaks_after = 0
        with pytest.raises(JournalUnavailable):
            await world.partitions.get().make_partition(CLAIM, request_for(gpu))
        assert (await world.profiles())[0] == ["whole"]


async def test_a_journal_that_is_not_known_is_not_an_empty_one(clock: FakeClock) -> None:
    """Whoever keeps it may be starting again: till then nothing is made a second time, nor taken for gone."""
    world = World(clock)
    async with world.running():
        gpu = await ready(world)
        made = await world.partitions.get().make_partition(CLAIM, request_for(gpu))
        world.book.is_known = False
        assert world.list_partitions() is None
        with pytest.raises(ControlRefused, match="the journal is not known yet: ask again"):
            await world.partitions.get().make_partition(CLAIM, request_for(gpu))
        with pytest.raises(ControlRefused, match="the journal is not known yet: ask again"):
            await world.partitions.get().remove_partition(CLAIM)
        world.book.is_known = True
        assert await world.partitions.get().make_partition(CLAIM, request_for(gpu)) == made
        assert (await world.profiles())[0] == ["1g.10gb"]


async def test_a_device_that_is_not_seen_is_not_given(clock: FakeClock) -> None:
    """It stays the key's, and is the answer once it is seen."""
    world = World(clock)
    async with world.running():
        gpu = await ready(world)
        world.is_blind = True
        with pytest.raises(ControlRefused, match=r"GPU 0: 1g\.10gb at slot 2 was made, and is not seen: ask again"):
            await world.partitions.get().make_partition(CLAIM, request_for(gpu))
        assert world.list_partitions() == {CLAIM: request_for(gpu)}
        (seen,) = (await world.look()).gpus[0].mig_devices
        assert await world.partitions.get().make_partition(CLAIM, request_for(gpu)) == seen


async def test_a_device_that_was_seen_before_anybody_waited_for_it_is_the_answer(
    clock: FakeClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The GPUs are looked at whenever the driver tells of a change, which may be before the call has returned."""
    world = World(clock)
    async with world.running():
        gpu = await ready(world)
        world.is_blind, write_partition = True, world.gpus.write_partition

        async def write_and_look(gpu: GpuUuid, write: Write) -> int:
            made = await write_partition(gpu, write)
            await world.look()
            return made

        monkeypatch.setattr(world.gpus, "write_partition", write_and_look)
        made = await world.partitions.get().make_partition(CLAIM, request_for(gpu))
        assert (made,) == (await world.look()).gpus[0].mig_devices


async def test_a_device_that_is_gone_is_not_taken_for_the_one_made_in_its_place(clock: FakeClock) -> None:
    """Nothing is made before it is seen that the one before is gone: both have the same number and place."""
    world = World(clock)
    async with world.running():
        gpu = await ready(world)
        await world.partitions.get().make_partition(OTHER, request_for(gpu, start=3))
        before = await world.partitions.get().make_partition(CLAIM, request_for(gpu))
        world.is_blind = True
        await world.partitions.get().remove_partition(CLAIM)
        with pytest.raises(ControlRefused, match="GPU 0 is not seen as it is by now: ask again"):
            await world.partitions.get().make_partition(CLAIM, request_for(gpu))
        assert world.list_partitions() == {OTHER: request_for(gpu, start=3)}
        await world.look()
        world.is_blind = False
        after = await world.partitions.get().make_partition(CLAIM, request_for(gpu))
        assert after in (await world.look()).gpus[0].mig_devices
        assert after.uuid != before.uuid


def ignore_writes(world: World, patch: pytest.MonkeyPatch) -> None:
    """From now on the driver says yes to every call, and does nothing."""

    async def ignore(gpu: GpuUuid, write: Write) -> int:
        return 0

    patch.setattr(world.gpus, "write_partition", ignore)


async def test_a_driver_that_makes_nothing_is_told(clock: FakeClock, monkeypatch: pytest.MonkeyPatch) -> None:
    """It refuses nothing, and is not asked for ever; nothing is left of it."""
    world = World(clock)
    async with world.running():
        gpu = await ready(world)
        ignore_writes(world, monkeypatch)
        with pytest.raises(GpuError, match="GPU 0 is not as it shall be although the driver refused nothing"):
            await world.partitions.get().make_partition(CLAIM, request_for(gpu))
        assert world.list_partitions() == {}
        assert world.book.ended == ["undone"]


async def test_a_driver_that_takes_nothing_away_is_told(clock: FakeClock, monkeypatch: pytest.MonkeyPatch) -> None:
    """The device stays the key's, and goes when the driver does what it is told."""
    world = World(clock)
    async with world.running():
        gpu = await ready(world)
        await world.partitions.get().make_partition(CLAIM, request_for(gpu))
        with monkeypatch.context() as patch:
            ignore_writes(world, patch)
            with pytest.raises(GpuError, match="GPU 0 is as it was although the driver refused nothing"):
                await world.partitions.get().remove_partition(CLAIM)
        assert world.list_partitions() == {CLAIM: request_for(gpu)}
        await world.partitions.get().remove_partition(CLAIM)
        assert (await world.profiles())[0] == ["whole"]
        assert world.book.ended == ["done"]


async def test_nobody_cuts_before_the_part_runs() -> None:
    """And says so."""
    partitions = World(FakeClock()).partitions
    assert partitions.value is None
    with pytest.raises(ControlRefused, match="does not cut GPUs"):
        await partitions.get().make_partition(CLAIM, PartitionRequest(gpu=GpuUuid("GPU-0"), profile="1g.10gb", start=0))
    with pytest.raises(ControlRefused, match="does not cut GPUs"):
        await partitions.get().remove_partition(CLAIM)


async def test_what_a_later_version_began_is_left_alone(clock: FakeClock) -> None:
    """And told."""
    world = World(clock)
    gpu = world.gpus  # its GPUs are seen once it runs
    await world.book.begin_change(OWNER, GpuUuid("GPU-gone"), Step(name="begin", at_seconds=0.0, payload="{"))
    async with world.running():
        await ready(world)
        assert gpu is world.gpus
        assert world.list_partitions() == {}
        assert "mig-half-way" in world.codes()


async def test_layouts_and_devices_take_turns(clock: FakeClock) -> None:
    """A layout that waits for somebody keeps no claim waiting, and leaves alone the GPU that the claim has."""
    world = World(clock)
    async with world.running():
        gpus = (await world.look()).gpus
        await ready(world)
        await world.partitions.get().make_partition(CLAIM, request_for(gpus[1]))
        world.hold(gpus[0].uuid)
        world.ask("all-1g.10gb")
        await world.until(lambda state: any("waits" in one.doing for one in state.changes))
        made = await world.partitions.get().make_partition(OTHER, request_for(gpus[1], start=3))
        assert made.parent == gpus[1].uuid
        world.hold()
        state = await world.until_standing("success")
        assert state.detail == "GPU 1 has MIG devices that claims have, and is left as it is"
        assert (await world.profiles())[:3] == [["1g.10gb"] * 7, ["1g.10gb"] * 2, ["1g.10gb"] * 7]
