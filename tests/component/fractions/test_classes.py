"""Devices of a divisible class in parts: counted and told, with all that holds for GPUs in parts."""

from functools import partial

import anyio
import pytest
from msgspec.structs import replace

from nodeagent.config.schema import Settings
from nodeagent.model.allocation import AllocationTable
from nodeagent.model.devices import DeviceTable, Standing
from nodeagent.model.errors import (
    ControlRefused,
    DeviceUnhealthy,
    FractionsUnavailable,
    NodeagentError,
    NoRoom,
    RequestInvalid,
)
from nodeagent.model.events import FractionReleased
from nodeagent.model.fractions import ContainerState, FractionOffers, PodContainer
from nodeagent.model.journal import Enforcement, GpuFraction
from nodeagent.model.runtime import RuntimeKind, RuntimeState
from nodeagent.rules.fractions.by_class import CLASSES_ANNOTATION, CLASSES_BOUND_ANNOTATION, read_by_class
from tests.component.fractions.classes import (
    AMD,
    AMD_CORE,
    AMD_MEMORY,
    D0,
    D1,
    ClassWorld,
    hold_whole,
    make_device,
    make_devices,
)
from tests.component.fractions.harness import Held
from tests.support.gpus import gpu_uuid
from tests.support.placement import GIB
from tests.support.virtual_time import FakeClock

pytestmark = pytest.mark.virtual_time


@pytest.fixture
def world(clock: FakeClock) -> ClassWorld:
    return ClassWorld(clock)


def runs(held: Held) -> PodContainer:
    return PodContainer(id=held.pod.name, pod_uid=held.pod.uid, name=held.container, state=ContainerState.RUNNING)


async def test_parts_are_counted_and_told(world: ClassWorld) -> None:
    """The fullest device first; variables instead of limits, and no folder."""
    async with world.running():
        assert world.offers.resources == (AMD_CORE, AMD_MEMORY)
        assert (await world.count_healthy(AMD_CORE), await world.count_healthy(AMD_MEMORY)) == (200, 512)
        one, two = await world.run("one", 30, 16), await world.run("two", 40, 32)
        assert one.parts == (GpuFraction(gpu=one.parts[0].gpu, cores=30, memory_bytes=16 * GIB),)
        assert two.parts[0].gpu == one.parts[0].gpu
        assert {one.enforcement, two.enforcement} == {Enforcement.COUNTED}
        assert world.read_told(two) == {
            "NODEAGENT_PART_DEVICES": two.parts[0].gpu,
            "NODEAGENT_PART_CORES": "40",
            "NODEAGENT_PART_MEMORY_MIB": "32768",
        }
        assert two.why.endswith("; counted, not enforced")
        assert world.decisions.bound[two.number][-1] == "note       counted, not enforced"
        assert (world.folders.limits, world.folders.prepared, world.gpu_specs.files) == ({}, [], {})


async def test_a_whole_device_is_asked_for_by_a_hundred_cores(world: ClassWorld) -> None:
    async with world.running():
        with pytest.raises(RequestInvalid, match=r"amd\.com/gpu-core"):
            await world.admit("odd", 150)
        part, whole = await world.run("part", 1, 1), await world.run("whole", 100)
        assert {part.parts[0].gpu, whole.parts[0].gpu} == {D0, D1}
        assert whole.parts[0].memory_bytes == 64 * GIB
        with pytest.raises(NoRoom):
            await world.run("more", 99, 64)


async def test_a_device_is_never_given_beyond_its_memory(world: ClassWorld) -> None:
    async with world.running():
        for name in ("a", "b"):
            await world.run(name, 10, 60)
        with pytest.raises(NoRoom):
            await world.run("c", 10, 5)
        await world.run("d", 10, 3)


async def test_the_agent_may_start_again(world: ClassWorld) -> None:
    """The same device by the same name, whatever was restarted in between."""
    async with world.running():
        held = await world.admit("one", 30, 64)
        before = await world.start(held)
    world.device_specs.files.clear()
    async with world.running():
        after = await world.start(held)
        assert after.parts == before.parts
        assert world.device_specs.find(held.cdi_name) == (before.parts[0].gpu,)
        assert world.durable_bindings() == [after]


async def test_what_has_ended_is_given_back(world: ClassWorld) -> None:
    """By the kubelet's word and the runtime's: no driver tells of processes on such devices."""
    async with world.running():
        held = await world.admit("one", 100)
        binding = await world.start(held)
        world.containers = None
        world.end(held)
        await anyio.sleep(60)
        assert world.table.bindings
        world.containers = ()
        await anyio.sleep(60)
        assert world.table.bindings == {}
        assert [fact.number for fact in world.facts(FractionReleased)] == [binding.number]
        assert world.device_specs.files == {}


async def test_a_container_that_runs_keeps_its_part(world: ClassWorld) -> None:
    async with world.running():
        held = await world.admit("one", 100)
        await world.start(held)
        world.containers = (runs(held),)
        world.end(held)
        await anyio.sleep(60)
        assert list(world.details("part-orphaned").values()) == ["ns/one (main), since its start bound as 2"]


async def test_a_device_that_fails_gives_nothing_new(world: ClassWorld) -> None:
    """Who has a part of it keeps that; once it is gone, its container does not start again."""
    async with world.running():
        held = await world.admit("one", 30, 16)
        device = (await world.start(held)).parts[0].gpu
        (other,) = {D0, D1} - {device}
        await world.change(make_devices(make_device(device, reason="too hot"), make_device(other)))  # type: ignore[arg-type]
        assert await world.count_healthy() == 100
        assert world.offers.unfit[device] == f"/dev/{device}: too hot"
        assert (await world.run("two", 30, 16)).parts[0].gpu == other
        await world.start(held)
        gone = replace(make_device(device), standing=Standing.GONE, reason="it went")
        await world.change(make_devices(make_device(other), gone))  # type: ignore[arg-type]
        with pytest.raises(DeviceUnhealthy, match="it went"):
            await world.plugin().pre_start(held.cores)
        await world.change(make_devices(make_device(other)))  # type: ignore[arg-type]
        with pytest.raises(DeviceUnhealthy, match="not on this node any more"):
            await world.plugin().pre_start(held.cores)
        # The ids stay known to the kubelet, unhealthy.
        listed = {each.id: each.healthy for each in await world.plugin().wait_devices(None)}
        assert len(listed) == 100 + len(held.cores)
        assert not any(listed[each] for each in held.cores)


async def test_a_device_held_whole_is_divided_when_it_is_free(world: ClassWorld) -> None:
    async with world.running():
        world.tell(hold_whole(D0))
        await anyio.sleep(0.1)
        assert await world.count_healthy() == 100
        assert "held whole by ml/before (main)" in world.offers.unfit[D0]
        world.tell(AllocationTable())
        await anyio.sleep(0.1)
        assert await world.count_healthy() == 200


async def test_a_device_of_unknown_memory_gives_nothing(world: ClassWorld) -> None:
    world.devices = make_devices(make_device(D0, memory_bytes=None))
    async with world.running():
        assert await world.count_healthy() == 0
        assert "give memory_mib of the class amd.com/gpu" in world.offers.unfit[D0]


async def test_limits_that_nothing_enforces_are_not_changed(world: ClassWorld) -> None:
    async with world.running():
        await world.run("one", 30, 16)
        with pytest.raises(ControlRefused, match="counted and not enforced"):
            await world.set_limits(pod="one", container="", cores=50, memory_bytes=None)


@pytest.mark.parametrize("through_shim", [False, True])
async def test_a_runtime_without_cdi_has_parts_wait(world: ClassWorld, through_shim: bool) -> None:
    """The runtime shim knows nothing of such devices."""
    lacking = RuntimeState(kind=RuntimeKind.CONTAINERD, version="1.6.0", cdi_enabled=False, through_shim=through_shim)
    async with world.running():
        held = await world.admit("one", 30, 16)
        await world.change(lacking)
        assert await world.count_healthy() == 0
        assert "takes no CDI devices" in world.details("parts-without-cdi")[""]
        with pytest.raises(FractionsUnavailable, match="takes no CDI devices"):
            await world.plugin().pre_start(held.cores)
        await world.change(replace(lacking, cdi_enabled=True, through_shim=False))
        assert await world.count_healthy() == 200
        await world.start(held)


async def test_a_lost_journal_is_made_again(world: ClassWorld) -> None:
    """By the kubelet's records, on the device that the ids stand for."""
    async with world.running():
        held = await world.admit("one", 30, 16)
        await world.start(held)
        world.containers = (runs(held),)
    world.store.current = None
    async with world.running():
        await anyio.sleep(30)
        (binding,) = world.table.bindings.values()
        assert binding.enforcement is Enforcement.COUNTED
        assert [part.cores for part in binding.parts] == [30]


async def test_specifications_left_over_are_removed(world: ClassWorld) -> None:
    """As soon as they can be listed."""
    await world.device_specs.write_fraction(("left",), (), (), {})
    world.device_specs.broken = "the disk is away"
    world.note()
    async with world.running():
        await anyio.sleep(15)
        assert "left" in world.device_specs.files
        world.device_specs.broken = ""
        held = await world.admit("one", 30, 16)
        await world.start(held)
        await anyio.sleep(15)
        assert world.device_specs.files.keys() == {held.cdi_name.partition("=")[2]}


async def test_gpus_and_devices_are_given_side_by_side(clock: FakeClock) -> None:
    """A container with parts of both has two bindings, and keeps both when it starts again."""
    world = ClassWorld(clock, has_gpus=True, enforcement="library")
    async with world.running():
        assert len(world.offers.resources) == 4
        world.ask_for(None)
        of_gpu = await world.admit("both", 40, 16)
        world.ask_for(AMD)
        of_device = await world.admit("both", 30, 16)
        world.held.remove(of_gpu)
        world.note()
        await world.start(of_device)
        world.ask_for(None)
        world.held = [of_gpu]
        world.note()
        await world.start(of_gpu)
        found = sorted(world.table.bindings.values(), key=lambda each: each.enforcement)
        assert [each.enforcement for each in found] == [Enforcement.COUNTED, Enforcement.LIBRARY]
        assert [each.parts[0].cores for each in found] == [30, 40]
        assert found[1].parts[0].gpu in (gpu_uuid(0), gpu_uuid(1))


async def test_devices_do_not_wait_for_gpus(clock: FakeClock) -> None:
    world, known = ClassWorld(clock, has_gpus=True), anyio.Event()
    world.wait_for_gpus = known.wait
    async with world.running():
        assert world.offers.resources == (AMD_CORE, AMD_MEMORY)
        known.set()
        await anyio.sleep(0.1)
        assert len(world.offers.resources) == 4


async def test_a_class_taken_out_is_given_no_more(world: ClassWorld) -> None:
    """Its bindings stand until their containers have ended."""
    async with world.running():
        held = await world.admit("one", 30, 16)
        await world.start(held)
        plugin, ids = world.plugin(), await world.list_free(AMD_CORE)
        world.live.replace(Settings())
        await world.change(DeviceTable())  # type: ignore[arg-type]
        assert world.offers.resources == ()
        with pytest.raises(FractionsUnavailable):
            await plugin.allocate(ids[:1])
        await anyio.sleep(60)
        assert len(world.table.bindings) == 1
        world.end(held)
        await anyio.sleep(60)
        assert world.table.bindings == {}


async def test_schedulers_are_told(world: ClassWorld) -> None:
    async with world.running():
        binding = await world.run("one", 30, 16)
        await anyio.sleep(0.2)
        said = {
            CLASSES_ANNOTATION: world.offers.published_classes,
            CLASSES_BOUND_ANNOTATION: world.offers.bound_classes,
        }
        published = read_by_class(said)[AMD]
        assert (published.profile, published.enforcement) == (AMD, None)
        assert [gpu.uuid for gpu in published.gpus] == [D0, D1]
        assert published.bound == {"uid-one-1": {"main": binding.parts}}
        assert (world.offers.published, world.offers.bound) == ("", "")


async def test_specifications_that_cannot_be_written_have_the_container_wait(world: ClassWorld) -> None:
    async with world.running():
        held = await world.admit("one", 30, 16)
        world.device_specs.broken = "no space left"
        with pytest.raises(NodeagentError, match="no space left"):
            await world.plugin().pre_start(held.cores)
        world.device_specs.broken = ""
        await world.start(held)


async def test_nothing_is_offered_before_anything_is_known(world: ClassWorld) -> None:
    """Neither GPUs nor devices of classes; the first that are known are offered."""
    async with world.keeping(), anyio.create_task_group() as tasks:
        tasks.start_soon(partial(tasks.start, world.build().run))
        await world.change(RuntimeState(kind=RuntimeKind.CONTAINERD, cdi_enabled=True))
        assert world.bus.latest(FractionOffers) is None
        world.tell()
        await anyio.sleep(0.1)
        assert AMD_CORE in world.offers.resources
        tasks.cancel_scope.cancel()
