"""What was promised and bound is given back when all agree that it has ended, on virtual time."""

from typing import Any

import anyio
import pytest

from nodeagent.model.errors import FractionsUnavailable, NoRoom
from nodeagent.model.events import FractionReleased
from nodeagent.model.fractions import ContainerState, PodContainer
from nodeagent.model.gpu import Unreadable
from nodeagent.model.journal import Enforcement
from nodeagent.model.ports import KubeletCheckpoint, PodListing
from nodeagent.model.ports.hardware import ProcessPlace
from nodeagent.model.runtime import RuntimeKind, RuntimeState
from nodeagent.model.telemetry import GpuSample, NodeSample, ProcessSample
from nodeagent.rules.fractions.published import read_published
from tests.component.fractions.harness import FakePlaces, World
from tests.support.fractions import make_settings, part
from tests.support.gpus import gpu_uuid
from tests.support.placement import GIB

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
        reasons = {fact.number: fact.reason for fact in world.facts(FractionReleased)}
        assert reasons[binding.number] == "kubelet, processes and containers agree that it is over"
        assert len(reasons) == 3


async def test_the_folder_of_what_was_promised_is_there_before_the_start(world: World) -> None:
    """It stays for as long as the promise; where it cannot be made the start says so."""
    async with world.running():
        held, never = await world.admit("train", 30, 32), await world.admit("never", 10, 4)
        await anyio.sleep(15)
        names = [each.cdi_name.partition("=")[2] for each in (held, never)]
        assert (world.folders.prepared, world.folders.limits) == (names, {})
        await world.start(held)
        world.end(never)
        await anyio.sleep(40)
        assert (world.folders.prepared, list(world.folders.limits)) == (names[:1], names[:1])
        world.folders.broken = "no space left on device"
        late = await world.admit("late", 10, 4)
        with pytest.raises(FractionsUnavailable, match="no space left"):
            await world.start(late)


@pytest.mark.parametrize("runtime", ["silent", "exited", "gone"])
async def test_who_ended_before_the_name_was_told_is_given_back(world: World, runtime: str) -> None:
    """The kubelet's notes keep the pod until the next one comes; the runtime knows that nothing is left of it."""
    async with world.running():
        held = await world.admit("brief", 30, 32)
        world.kubelet.listing = PodListing()
        exited = PodContainer(id="1", pod_uid=held.pod.uid, name="main", state=ContainerState.EXITED)
        world.containers = {"silent": None, "exited": (exited,), "gone": ()}[runtime]
        binding = await world.start(held)
        assert not binding.pod.name
        await anyio.sleep(40)
        assert world.durable_bindings() == ([] if runtime == "gone" else [binding])
        world.containers = ()
        await anyio.sleep(40)
        assert world.durable_bindings() == []


async def test_a_runtime_that_cannot_be_asked_is_told_while_parts_are_out(world: World) -> None:
    """Nothing is given back without its word, so people are told what to do; its first answer ends both."""
    world.containers = None
    async with world.running():
        await anyio.sleep(40)
        assert world.details("parts-not-given-back") == {}
        held = await world.admit("train", 30, 32)
        await world.start(held)
        world.end(held)
        await anyio.sleep(60)
        assert len(world.table.bindings) == 1
        assert [*world.details("parts-not-given-back").values()] == ["the runtime does not answer"]
        world.containers = ()
        await anyio.sleep(60)
        assert world.table.bindings == {}
        assert world.details("parts-not-given-back") == {}


async def test_a_runtime_that_is_not_the_kubelets_gives_nothing_back(world: World) -> None:
    """A second containerd has none of the node's containers: what it does not have has not ended by that."""
    world.is_runtime_of_kubelet = False
    world.tell(RuntimeState(kind=RuntimeKind.CONTAINERD, socket="/run/other.sock"))
    async with world.running():
        held = await world.admit("train", 30, 32)
        await world.start(held)
        assert world.kubelet.listing is not None
        # As after a deleted checkpoint: the pods are there, nobody holds anything.
        world.kubelet.listing, world.kubelet.checkpoint = PodListing(world.kubelet.listing.pods), KubeletCheckpoint()
        await anyio.sleep(100)
        assert len(world.table.bindings) == 1
        assert [*world.details("parts-not-given-back").values()] == [
            "the runtime at /run/other.sock has no container of the kubelet's 2 pods"
        ]
        world.is_runtime_of_kubelet = True
        running = PodContainer(id="1", pod_uid=held.pod.uid, name="main", state=ContainerState.RUNNING)
        world.containers = (running,)
        await anyio.sleep(60)
        assert len(world.table.bindings) == 1
        assert world.details("parts-not-given-back") == {}
        world.containers = ()
        await anyio.sleep(60)
        assert world.table.bindings == {}


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


UNREAD = (
    {"lost": "a call did not come back", "silent": True},
    {"unreadable": (Unreadable(what="processes", reason="unknown error"),)},
)


@pytest.mark.parametrize("unread", UNREAD)
async def test_a_gpu_that_does_not_tell_who_uses_it_is_not_free(world: World, unread: dict[str, Any]) -> None:
    """What a process has that outlives its container is given to nobody for that, nor is what others use."""
    places = world.places = FakePlaces()
    foreign = ProcessSample(pid=8, memory_used_bytes=8 * GIB)

    async def see(*processes: ProcessSample, **more: Any) -> None:
        gpu = GpuSample(uuid=gpu_uuid(0), processes=processes, **more)
        for _ in range(60):
            world.tell(NodeSample(time_seconds=world.clock.wall(), gpus=(gpu, GpuSample(uuid=gpu_uuid(1)))))
            await anyio.sleep(1)

    async with world.running():
        held = await world.admit("train", 30, 32)
        await world.start(held)
        world.end(held)
        places.known = {7: ProcessPlace(pod_uid=held.pod.uid), 8: ProcessPlace(name="python3")}
        for _ in range(2):
            await see(ProcessSample(pid=7), foreign)
            assert len(world.table.bindings) == len(world.details("part-foreign-use")) == 1
            await see(**unread)
            assert len(world.table.bindings) == 1
            assert read_published(world.offers.published).space.rooms[0].foreign_bytes == 8 * GIB
        await see()
        assert (world.table.bindings, world.details("part-foreign-use")) == ({}, {})


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


async def test_one_that_is_taken_in_where_mps_holds_keeps_its_daemon(world: World) -> None:
    """Nobody remembers what held it: without that word the daemon through which it works would be ended."""
    async with world.running():
        held, whole = await world.admit("train", 30, 32), await world.admit("big", 100)
        await world.start(held)
        await world.start(whole)
    world.store.current = world.store.previous = None
    world.containers = tuple(
        PodContainer(id=one.pod.name, pod_uid=one.pod.uid, name="main", state=ContainerState.RUNNING)
        for one in (held, whole)
    )
    world.live.replace(make_settings(enforcement="mps"))
    async with world.running():
        await anyio.sleep(5)
        found = {one.pod.name: one.enforcement for one in world.table.bindings.values()}
    assert found == {"train": Enforcement.MPS, "big": Enforcement.ADVISE}


@pytest.mark.parametrize("is_used", [False, True])
async def test_one_that_is_taken_in_where_the_library_holds_starts_again_with_it(world: World, is_used: bool) -> None:
    """By what is seen of the library in it, or by the settings; a whole GPU needs none."""
    world.live.replace(make_settings(enforcement="library"))
    async with world.running():
        held, whole = await world.admit("train", 30, 32), await world.admit("big", 100)
        for each in (held, whole):
            await world.start(each)
    mounts = dict(world.specs.files)
    if is_used:
        world.live.replace(make_settings())
        world.folders.used = set(mounts)
    world.store.current = world.store.previous = None
    world.containers = tuple(
        PodContainer(id=one.pod.name, pod_uid=one.pod.uid, name="main", state=ContainerState.RUNNING)
        for one in (held, whole)
    )
    async with world.running():
        await anyio.sleep(5)
        found = {one.pod.name: one.enforcement for one in world.table.bindings.values()}
        assert found == {"train": Enforcement.LIBRARY, "big": Enforcement.ADVISE}
        for each in (held, whole):
            await world.start(each)
        assert world.specs.files == mounts


async def test_a_container_without_the_library_is_named(world: World) -> None:
    """Its pod works on the GPU, and nothing of the library was seen; one that does not work is not accused."""
    places = world.places = FakePlaces()
    world.live.replace(make_settings(enforcement="library"))
    async with world.running():
        held = await world.admit("train", 30, 32)
        await world.start(held)
        places.known[7] = ProcessPlace(pod_uid=held.pod.uid, container_id="c")
        name = held.cdi_name.partition("=")[2]
        for pids, used, named in (((), False, 0), ((7,), False, 1), ((7,), True, 0)):
            world.folders.used = {name} if used else set()
            for _ in range(30):
                sample = GpuSample(uuid=gpu_uuid(0), processes=tuple(ProcessSample(pid=pid) for pid in pids))
                world.tell(NodeSample(time_seconds=world.clock.wall(), gpus=(sample,)))
                await anyio.sleep(1)
            assert len(world.details("part-library-absent")) == named


async def test_what_was_left_of_a_container_is_taken_away(world: World) -> None:
    """Folders that no binding has, once the kubelet's list and its notes could be read; others stay."""
    async with world.running():
        held = await world.admit("train", 30, 32)
        await world.start(held)
        kept = set(world.folders.limits)
        world.folders.limits["left"] = ()
        world.specs.keeps = "read-only file system"
        await anyio.sleep(30)
        assert set(world.folders.limits) == {*kept, "left"}
        world.specs.keeps = ""
        await anyio.sleep(30)
        assert set(world.folders.limits) == kept


async def test_what_others_use_is_not_promised(world: World) -> None:
    """Neither its memory, nor the GPU alone; it is told to schedulers, and over when it is gone."""
    world.places = FakePlaces()
    world.places.known[7] = ProcessPlace(pod_uid="a-stranger")

    async def see(*processes: ProcessSample) -> None:
        gpu = GpuSample(uuid=gpu_uuid(0), processes=processes)
        for _ in range(11):
            world.tell(NodeSample(time_seconds=world.clock.wall(), gpus=(gpu,)))
            await anyio.sleep(1)

    async with world.running():
        await see(ProcessSample(pid=7, memory_used_bytes=30 * GIB))
        published = read_published(world.offers.published)
        assert [(room.foreign_bytes, room.foreign) for room in published.space.rooms] == [(30 * GIB, True), (0, False)]
        held = await world.admit("train", 10, 16)
        assert (await world.start(held)).parts == (part(1, 10, 4),)
        with pytest.raises(NoRoom, match="somebody has it"):
            await world.start(await world.admit("whole", 100))
        await see()
        assert not read_published(world.offers.published).space.rooms[0].foreign


async def test_a_program_that_was_given_nothing_is_named_until_it_ends(world: World) -> None:
    """By its pod's name as soon as the container runtime tells it; what the runtime said once is kept."""
    world.places = FakePlaces()
    world.places.known[7] = ProcessPlace(pod_uid="u", container_id="c")
    world.places.known[8] = ProcessPlace(name="dcgmi")
    world.containers = None
    running = ContainerState.RUNNING
    container = PodContainer(id="c", pod_uid="u", name="main", state=running, namespace="ml", pod="rogue")

    async def see(*processes: ProcessSample) -> dict[str, str]:
        gpu = GpuSample(uuid=gpu_uuid(0), processes=processes)
        for _ in range(11):
            world.tell(NodeSample(time_seconds=world.clock.wall(), gpus=(gpu,)))
            await anyio.sleep(1)
        return world.details("part-foreign-use")

    rogue = ProcessSample(pid=7, memory_used_bytes=30 * GIB)
    async with world.running():
        assert await see(ProcessSample(pid=8, memory_used_bytes=0)) == {}
        assert await see(rogue) == {gpu_uuid(0): "GPU 0: a process of pod u (pid 7) uses 30 GiB"}
        world.containers = (container,)
        named = {gpu_uuid(0): "GPU 0: a process of pod ml/rogue (pid 7) uses 30 GiB"}
        assert await see(rogue) == named
        world.containers = None
        assert await see(rogue) == named
        assert await see() == {}


@pytest.mark.parametrize("at", ["containers", "files"])
async def test_files_stay_while_nobody_knows_whose_they_are(
    world: World, monkeypatch: pytest.MonkeyPatch, at: str
) -> None:
    """The journal's keeper falls away in the midst of a look: what it says then is not that there is nobody."""
    ends: list[bool] = []

    def end() -> None:
        if world.journal.parts() and world.table.bindings:
            ends.append(True)
            monkeypatch.setattr(world.journal, "parts", lambda: None)

    async def list_containers() -> tuple[PodContainer, ...]:
        end()
        return ()

    async def list_names() -> tuple[str, ...]:
        end()
        return tuple(world.folders.limits)

    if at == "containers":
        monkeypatch.setattr(world, "_list_containers", list_containers)
    else:
        monkeypatch.setattr(world.folders, "list_names", list_names)
    async with world.running():
        await world.start(await world.admit("train", 30, 32))
        table, files, limits = world.table, dict(world.specs.files), dict(world.folders.limits)
        await anyio.sleep(15)
        assert ends
        assert (world.specs.files, world.folders.limits) == (files, limits)
        monkeypatch.undo()
        assert world.table == table
