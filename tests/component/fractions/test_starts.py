"""Promised, bound, started again, refused: what the kubelet gets from who gives GPUs in parts, on virtual time."""

import json

import anyio
import pytest
from msgspec.structs import replace

from nodeagent.components.signals.receipts_task import ReceiptFolders
from nodeagent.config.live import LiveSettings
from nodeagent.model.errors import (
    DeviceUnhealthy,
    DeviceUnknown,
    FractionsUnavailable,
    JournalUnavailable,
    NoRoom,
    RequestInvalid,
)
from nodeagent.model.events import FractionBound, FractionRefused
from nodeagent.model.fractions import ContainerState, FractionLimit, PodContainer
from nodeagent.model.ids import DeviceId
from nodeagent.model.plugin import ContainerMount
from nodeagent.rules.container_receipts import name_fraction_receipt
from tests.component.fractions.harness import Held, World
from tests.component.signals.test_receipts import ON, FakeReceiptFiles
from tests.support.fractions import part, used
from tests.support.gpus import gpu_uuid, make_inventory
from tests.support.journals import CORE, MEMORY
from tests.support.placement import GIB

pytestmark = pytest.mark.virtual_time


async def test_a_container_gets_a_gpu_its_limits_and_its_name(world: World) -> None:
    """What it was told at its admission means its GPU when it starts, and nothing before."""
    async with world.running():
        held = await world.admit("train", 30, 32)
        assert (world.specs.files, world.table.bindings) == ({}, {})
        binding = await world.start(held)
        assert (binding.pod, binding.container) == (held.pod, "main")
        assert binding.parts == (part(0, 30, 8),)
        name = held.cdi_name.partition("=")[2]
        limit = FractionLimit(gpu=gpu_uuid(0), memory_bytes=8 * GIB)
        assert world.folders.limits == {name: (limit,)}
        _, mounts = world.specs.files[name][name]
        assert mounts == (
            ContainerMount(container_path="/run/nodeagent/vgpu/limits", host_path=f"/state/{name}/limits"),
            ContainerMount(
                container_path="/run/nodeagent/vgpu/usage", host_path=f"/state/{name}/usage", read_only=False
            ),
        )
        (fact,) = world.facts(FractionBound)
        assert (fact.number, fact.gpus, fact.reason) == (binding.number, (gpu_uuid(0),), binding.why)


async def test_a_container_with_a_receipt_has_it_before_its_limits(world: World) -> None:
    """The limits are mounted below the receipt's folder, which has a place for them."""
    files = FakeReceiptFiles()
    world.receipts = ReceiptFolders(world.bus, world.conditions, LiveSettings(ON), files)
    async with world.running():
        binding = await world.start(await world.admit("train", 30, 32))
        name = name_fraction_receipt(binding)
        places = [mount.container_path for mount in world.specs.files[name][name][1]]
        assert places == ["/run/nodeagent", "/run/nodeagent/vgpu/limits", "/run/nodeagent/vgpu/usage"]
        assert world.specs.files[name][name][1][0].host_path == files.locate(name)
        assert set(files.points[name]) == {("vgpu/limits", False), ("vgpu/usage", False)}
        assert json.loads(files.folders[name]["gpus.json"])["gpus"][0]["uuid"] == gpu_uuid(0)


async def test_names_tell_nothing_and_differ(world: World) -> None:
    """Whoever reads a pod's containers learns nothing of the node."""
    async with world.running():
        names = [(await world.admit(f"pod-{number}", 1, 1)).cdi_name for number in range(20)]
        assert len(set(names)) == 20
        assert all("GPU" not in name for name in names)


async def test_a_promise_is_durable_before_it_is_answered(world: World) -> None:
    """What cannot be written down is not promised, and not bound."""
    async with world.running():
        held = await world.admit("early", 10, 4)
        world.store.failure = "no space left on device"
        with pytest.raises(JournalUnavailable):
            await world.admit("late", 10, 4)
        with pytest.raises(JournalUnavailable):
            await world.start(held)
        assert world.table.bindings == {}
        world.store.failure = ""
        await anyio.sleep(30)
        await world.start(held)
    assert {each.reason for each in world.facts(FractionRefused)} != {""}


async def test_the_same_container_started_again_has_what_it_had(world: World) -> None:
    """Also when the component, and when the journal's keeper was built anew in between; its files are made whole."""
    async with world.running():
        held = await world.admit("train", 30, 32)
        before = await world.start(held)
        assert await world.start(held) == before
    world.specs.files.clear()
    world.folders.limits.clear()
    async with world.running():
        assert await world.start(held) == before
        assert len(world.folders.limits) == 1
    assert len(world.facts(FractionBound)) == 1


async def test_containers_that_share_their_ids_one_after_the_other(world: World) -> None:
    """The init container and the one after it hold the same ids, and were told a name each: both mean one binding."""
    async with world.running():
        first = await world.admit("train", 30, 32, container="init-data")
        second = await world.admit("train", 30, 32, share=first)
        assert first.cores == second.cores
        assert first.cdi_name != second.cdi_name
        assert await world.start(first) == await world.start(second)
        assert world.specs.find(first.cdi_name) == world.specs.find(second.cdi_name)
        assert len(world.table.bindings) == 1
        assert len(world.specs.files) == 1
        assert [each.container for each in world.table.bindings.values()] == ["main"]


async def test_ids_that_a_kubelet_without_notes_deals_anew_bind_nobody_twice(world: World) -> None:
    """Two containers start with each other's ids, as after a reboot, and once more: each has one part throughout."""
    async with world.running():
        before = [await world.admit(name, 30, 32) for name in ("one", "two")]
        for each in before:
            await world.start(each)
        world.held.clear()
        # Each by its own name and uid, with what the other had.
        dealt = [
            await world.admit(mine.pod.name, 30, 32, share=Held(mine.pod, "main", other.cores, other.memory))
            for mine, other in zip(before, reversed(before), strict=True)
        ]
        assert [each.cores for each in dealt] == [before[1].cores, before[0].cores]
        world.containers = tuple(
            PodContainer(id=each.pod.uid, pod_uid=each.pod.uid, name="main", state=ContainerState.RUNNING)
            for each in dealt
        )
        for each in dealt:
            await world.plugin(CORE).pre_start(each.cores)
        bound = [await world.start(each) for each in dealt]
        await anyio.sleep(60)
        assert world.table.bindings == {each.number: each for each in bound}
        assert used(world.table) == {gpu_uuid(0): (60, 16 * GIB, 2)}
        assert world.details("part-orphaned") == {}
        assert [await world.start(each) for each in dealt] == bound


async def test_a_larger_container_after_a_smaller_one_takes_its_place(world: World) -> None:
    """Only the second counts then, and the files of the first go; after a reboot both start again, in turn."""
    async with world.running():
        first = await world.admit("train", 30, 32, container="init-data")
        second = await world.admit("train", 90, 64, share=first)
        await world.start(first)
        binding = await world.start(second)
        assert world.table.bindings == {binding.number: binding}
        assert list(world.specs.files) == list(world.folders.limits) == [second.cdi_name.partition("=")[2]]
        assert used(world.table) == {gpu_uuid(0): (90, 16 * GIB, 1)}
        await anyio.sleep(60)
        for each in (first, second):
            await world.start(each)
            assert len(world.table.bindings) == len(world.specs.files) == len(world.folders.limits) == 1


async def test_files_that_cannot_be_removed_do_not_keep_the_next_from_starting(world: World) -> None:
    """They are in nobody's way."""
    async with world.running():
        first = await world.admit("train", 30, 32, container="init-data")
        second = await world.admit("train", 90, 64, share=first)
        await world.start(first)

        world.specs.keeps = "read-only file system"
        await world.start(second)
        assert len(world.specs.files) == 2


async def fill(world: World) -> list[Held]:
    """Two GPUs of which each has 12 GiB left: the kubelet still counts 96 blocks, and 20 GiB fit on neither."""
    held = [await world.admit(name, 10, 80) for name in ("first", "second")]
    for each in held:
        await world.start(each)
    return held


async def test_without_room_a_container_waits_and_is_told_of(world: World) -> None:
    """Refused with the reason, a condition says so, and it succeeds by itself when room has come."""
    async with world.running():
        first, _ = await fill(world)
        third = await world.admit("third", 30, 80)
        for _ in range(2):
            with pytest.raises(NoRoom, match="no room for 30 cores and 20 GiB of memory of one GPU: GPU 0, 1: "):
                await world.start(third)
        (detail,) = world.details("part-no-room").values()
        assert detail.startswith("ns/third (main): no room for 30 cores")
        assert [each.count for each in world.facts(FractionRefused)] == [30, 30]
        world.end(first)
        await anyio.sleep(60)
        assert (await world.start(third)).parts == (part(0, 30, 20),)
        assert world.details("part-no-room") == {}


async def test_a_container_that_waited_and_went_is_told_of_no_more(world: World) -> None:
    """Its pod was deleted; a component that was built anew knows of nobody who waits."""
    async with world.running():
        await fill(world)
        for name, cores, blocks in (("third", 30, 49), ("fourth", 95, 4)):
            with pytest.raises(NoRoom):
                await world.start(await world.admit(name, cores, blocks))
        assert set(world.details("part-no-room")) == {"ns/third (main)", "ns/fourth (main)"}
        world.end(next(each for each in world.held if each.pod.name == "third"))
        await anyio.sleep(60)
        assert set(world.details("part-no-room")) == {"ns/fourth (main)"}
    async with world.running():
        assert world.details("part-no-room") == {}


async def test_racing_containers_never_get_more_than_there_is(world: World) -> None:
    """The kubelet counts blocks of all GPUs together: three of 20 GiB fit the count, and the third fits no GPU."""
    outcomes: list[str] = []
    async with world.running():
        everybody = [await world.admit(f"pod-{number}", 10, 80) for number in range(3)]

        async def start(number: int) -> None:
            try:
                await world.start(everybody[number])
            except NoRoom:
                outcomes.append("no room")
            else:
                outcomes.append("started")

        async with anyio.create_task_group() as tasks:
            for number in range(3):
                tasks.start_soon(start, number)
        assert sorted(outcomes) == ["no room", "started", "started"]
        assert used(world.table) == {gpu_uuid(0): (10, 20 * GIB, 1), gpu_uuid(1): (10, 20 * GIB, 1)}


async def test_ids_that_are_unknown_or_unhealthy_are_refused(world: World) -> None:
    """Nothing is written down for them."""
    async with world.running():
        plugin = world.plugin()
        with pytest.raises(DeviceUnknown):
            await plugin.allocate([DeviceId("core-n0-gdeadbeef-0")])
        inventory = make_inventory([replace(gpu, lost="fell off") for gpu in world.inventory.gpus])
        (healthy, *_) = [device.id for device in await plugin.wait_devices(None)]
        await world.change(inventory)
        with pytest.raises(DeviceUnhealthy, match="nothing of its GPU can be given now"):
            await plugin.allocate([healthy])
        assert world.table.reservations == {}


async def test_what_can_never_be_served_is_refused_at_the_admission(world: World) -> None:
    """One GPU and a half; the words are the pod's."""
    async with world.running():
        with pytest.raises(RequestInvalid, match="150 is more than one GPU"):
            await world.admit("odd", 150, 8)
        (refused,) = world.facts(FractionRefused)
        assert (refused.resource, refused.count) == (CORE, 150)
        assert "150 is more than one GPU" in refused.reason


async def test_a_start_takes_ten_seconds_at_most(world: World) -> None:
    """The kubelet waits for thirty; whoever hangs is named, and the next try finds the binding."""
    async with world.running():
        held = await world.admit("train", 30, 32)
        world.specs.hangs = True
        began = anyio.current_time()
        with pytest.raises(FractionsUnavailable, match="did not answer within 10 s"):
            await world.start(held)
        assert anyio.current_time() - began == pytest.approx(10)
        world.specs.hangs = False
        await world.start(held)
        assert len(world.table.bindings) == 1


async def test_files_that_cannot_be_written_keep_the_container_from_starting(world: World) -> None:
    """It would run without limits, or not at all; its GPU stays its own meanwhile."""
    async with world.running():
        held = await world.admit("train", 30, 32)
        for fake in (world.folders, world.specs):
            fake.broken = "read-only file system"
            with pytest.raises(FractionsUnavailable, match="read-only file system"):
                await world.start(held)
            fake.broken = ""
        assert len(world.table.bindings) == 1
        assert [each.resource for each in world.facts(FractionRefused)] == [CORE, CORE]
        await world.start(held)


@pytest.mark.parametrize("is_gone", [False, True])
async def test_a_container_does_not_start_again_on_a_gpu_that_is_broken(world: World, *, is_gone: bool) -> None:
    """Its binding stays: the GPU may come back."""
    async with world.running():
        held = await world.admit("train", 30, 32)
        before = await world.start(held)
        first, second = world.inventory.gpus
        gpus = [second] if is_gone else [replace(first, lost="fell off the bus"), second]
        await world.change(make_inventory(gpus))
        with pytest.raises(DeviceUnhealthy, match="not on this node any more" if is_gone else "fell off the bus"):
            await world.start(held)
        await world.change(world.inventory)
        assert await world.start(held) == before


async def test_nothing_is_answered_while_nobody_is_there(world: World) -> None:
    """Plugins outlive the component: they fail at once, and work when it is back."""
    async with world.running():
        held = await world.admit("train", 30, 32)
        plugin = world.plugin()
    with pytest.raises(FractionsUnavailable, match="is starting or has failed"):
        await plugin.allocate(held.cores)
    with pytest.raises(FractionsUnavailable):
        await plugin.pre_start(held.cores)
    async with world.running():
        assert world.plugin() is plugin
        await world.start(held)


async def test_it_has_started_when_the_kubelet_knows_what_it_offers(world: World) -> None:
    """Whoever waits for the agent to be ready may count on parts; they are given before that, if they are asked for."""
    world.kubelet_is_away = True
    async with world.keeping():
        world.tell()
        with anyio.move_on_after(60) as patience:
            async with world.giving():
                pytest.fail("it says that it has started")
        assert patience.cancelled_caught
        assert set(world.relay.plugins) == {CORE, MEMORY}
        world.kubelet_is_away = False
        with anyio.fail_after(1):
            async with world.giving():
                assert await world.count_healthy() > 0


async def test_a_component_that_knows_no_gpus_gives_nothing(world: World) -> None:
    """Whoever asks too early is told to ask again."""
    component = world.build()
    with pytest.raises(FractionsUnavailable, match="not known yet"):
        await component.allocate(CORE, [])
    with pytest.raises(FractionsUnavailable, match="not known yet"):
        await component.pre_start(CORE, [])


async def test_memory_alone_starts_nothing(world: World) -> None:
    """The cores' call does it all."""
    async with world.running():
        held = await world.admit("train", 30, 32)
        await world.plugin(MEMORY).pre_start(held.memory)
        assert world.table.bindings == {}
        world.kubelet.listing = world.kubelet.checkpoint = None
        await world.plugin(MEMORY).pre_start(held.memory)


async def test_a_journal_that_is_not_kept_keeps_containers_from_starting(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its keeper is being built anew; the component is still there."""
    async with world.running():
        held = await world.admit("train", 30, 32)
        with monkeypatch.context() as patched:
            patched.setattr(world.journal, "parts", lambda: None)
            with pytest.raises(JournalUnavailable, match="it has not been read yet"):
                await world.plugin().pre_start(held.cores)
        await world.start(held)
