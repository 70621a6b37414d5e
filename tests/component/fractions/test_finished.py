"""What a pod had that has finished is free on its node when schedulers count it as free, on virtual time."""

import anyio
import pytest
from msgspec.structs import replace

from nodeagent.components.fractions.component import NAME_PAUSES_SECONDS
from nodeagent.components.fractions.poll_task import SourcePoller, Sources
from nodeagent.model.errors import NoRoom
from nodeagent.model.events import FractionReleased
from nodeagent.model.fractions import ContainerRequest, ContainerState, PodContainer, PodRequest
from tests.component.fractions.harness import FakePods, Held, World
from tests.support.fractions import part

pytestmark = pytest.mark.virtual_time

CHOICE = {"tencent.com/predicate-gpu-idx-0": "0"}


def say(held: Held, *, is_finished: bool = False) -> PodRequest:
    """What the API server says of a pod for which a scheduler has chosen GPU 0."""
    containers = (ContainerRequest(name="main"),)
    return PodRequest(pod=held.pod, annotations=CHOICE, containers=containers, is_finished=is_finished)


def exited(held: Held, state: ContainerState = ContainerState.EXITED) -> PodContainer:
    return PodContainer(id=held.pod.name, pod_uid=held.pod.uid, name="main", state=state)


@pytest.fixture
def pods(world: World) -> FakePods:
    world.pods = FakePods()
    return world.pods


async def test_what_a_finished_pod_had_is_given_back_at_once(world: World, pods: FakePods) -> None:
    """When the API server says so, and all others agree: without it only two looks ten seconds apart would do."""
    async with world.running():
        held = await world.admit("train", 30, 32)
        pods.put(say(held))
        await world.start(held)
        world.end(held)
        world.containers = (exited(held),)
        pods.put(say(held, is_finished=True))
        await anyio.sleep(0.5)
        assert world.table.bindings == {}
        assert world.facts(FractionReleased)[0].reason == "its pod has finished, as all others agree"


async def test_a_container_that_is_still_there_keeps_what_it_has(world: World, pods: FakePods) -> None:
    """It is looked at anew for a moment, also when the pod's object is gone by then."""
    async with world.running():
        held = await world.admit("train", 30, 32)
        pods.put(say(held))
        await world.start(held)
        world.end(held)
        world.containers = (exited(held, ContainerState.RUNNING),)
        pods.put(say(held, is_finished=True))
        await anyio.sleep(2)
        pods.put()
        await anyio.sleep(0.1)
        assert len(world.table.bindings) == 1
        world.containers = ()
        await anyio.sleep(1.5)
        assert world.table.bindings == {}


@pytest.mark.parametrize("cores", [30, 100])
async def test_a_pod_that_comes_in_its_place_need_not_wait(world: World, pods: FakePods, cores: int) -> None:
    """Neither for room nor for the GPU that was chosen for it: the one before it may have ended this very moment."""
    async with world.running():
        first = await world.admit("first", 100)
        pods.put(say(first))
        assert (await world.start(first)).parts[0].gpu == part(0, 0, 0).gpu
        second = await world.admit("second", cores, 8 if cores < 100 else 0)
        world.end(first)
        world.containers = (exited(first, ContainerState.RUNNING),)
        pods.put(say(first, is_finished=True), say(second))
        await anyio.sleep(0.5)
        assert len(world.table.bindings) == 1
        # Gone between two looks: whoever starts now is what looks again.
        world.containers = (exited(first),)
        assert (await world.start(second)).parts[0].gpu == part(0, 0, 0).gpu
        assert [each.pod.name for each in world.table.bindings.values()] == ["second"]
        assert pods.written == []


async def test_what_is_really_taken_is_refused_all_the_same(world: World, pods: FakePods) -> None:
    """One look more does not make room."""
    async with world.running():
        held = [await world.admit(f"pod-{number}", 100) for number in range(len(world.inventory.gpus))]
        for each in held:
            pods.put(*(replace(say(one), annotations={}) for one in held))
            await world.start(each)
        finished = held[0]
        world.end(finished)
        late = await world.admit("late", 100)
        world.containers = (exited(finished, ContainerState.RUNNING),)
        pods.put(say(finished, is_finished=True), replace(say(late), annotations={}))
        with pytest.raises(NoRoom):
            await world.plugin().pre_start(late.cores)
        assert len(world.table.bindings) == len(held)


async def test_what_ends_while_others_are_named_stays_ended(world: World, pods: FakePods) -> None:
    """Names are written one by one, and whoever else changes something has a turn in between."""
    async with world.running():
        held = [await world.admit(f"pod-{number}", 30, 32) for number in range(3)]
        for each in held:
            # The list is silent, so that only the uid is known.
            world.kubelet.listing = None
            await world.plugin().pre_start(each.cores)
        await anyio.sleep(0.1)  # the poll for names at the last start is over
        world.note()
        world.store.append_seconds = 0.1
        await anyio.sleep(NAME_PAUSES_SECONDS[0] + 0.05)
        assert [each.pod.name for each in world.table.bindings.values()] == ["pod-0", "", ""]
        last = held[-1]
        world.end(last)
        pods.put(say(last, is_finished=True))
        await anyio.sleep(1)
        assert sorted(each.pod.name for each in world.table.bindings.values()) == ["pod-0", "pod-1"]


async def test_a_runtime_of_simulated_containers_is_not_asked(world: World) -> None:
    """It has none of them, and is not silent for that."""
    sources = Sources(world.kubelet)  # type: ignore[arg-type]  # as far as it is used
    poller = SourcePoller(world.bus, world.clock, sources, tuple)
    assert await poller.ask_runtime(None) == ((), "")
