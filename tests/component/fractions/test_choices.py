"""What a scheduler has chosen is read from the pod, kept to where it can be, and corrected where it cannot."""

import anyio
import pytest
from msgspec.structs import replace

from nodeagent.components.fractions.pod_resolver_task import POD_SECONDS
from nodeagent.model.allocation import PodIdentity
from nodeagent.model.fractions import ContainerRequest, FractionDecisions, PodRequest
from tests.component.fractions.harness import FakePods, Held, World
from tests.support.fractions import make_settings, part
from tests.support.gpus import gpu_uuid

pytestmark = pytest.mark.virtual_time


async def test_the_schedulers_choice_is_read_from_the_pod(world: World) -> None:
    """It comes a moment later than the pod; one that makes no sense is in nobody's way."""
    pods = world.pods = FakePods()
    async with world.running():
        held = await world.admit("train", 30, 32)
        said = PodRequest(
            pod=held.pod,
            annotations={"tencent.com/predicate-gpu-idx-0": "1"},
            containers=(ContainerRequest(name="main"),),
        )

        async def put_later() -> None:
            await anyio.sleep(0.5)
            pods.put(said)

        async with anyio.create_task_group() as tasks:
            tasks.start_soon(put_later)
            assert (await world.start(held)).parts == (part(1, 30, 8),)
        other = await world.admit("infer", 30, 32)
        pods.put(said, replace(said, pod=other.pod, annotations={"tencent.com/predicate-gpu-idx-0": "x"}))
        assert (await world.start(other)).parts


async def test_a_choice_that_cannot_be_is_corrected_on_the_pod(world: World) -> None:
    """Written and counted by its reason; who may not write on pods is no reason for a container not to start."""
    pods = world.pods = FakePods()
    first, second = "tencent.com/predicate-gpu-idx-0", "tencent.com/predicate-gpu-uuid-0"
    async with world.running():

        async def run(name: str, chosen: str) -> PodIdentity:
            held = await world.admit(name, 60, 32)
            main = ContainerRequest(name="main")
            pods.put(PodRequest(pod=held.pod, annotations={first: chosen, "other": "x"}, containers=(main,)))
            await anyio.sleep(0.1)
            await world.start(held)
            return held.pod

        await run("obeyed", "1")
        assert pods.written == []
        full = await run("full", "1")
        assert pods.written == [(full, {first: "0", second: gpu_uuid(0)})]
        pods.refused = "pods is forbidden"
        held = await world.admit("odd", 30, 32)
        pods.put(PodRequest(pod=held.pod, annotations={first: "9"}, containers=(ContainerRequest(name="main"),)))
        await anyio.sleep(0.1)
        await world.start(held)
        assert len(pods.written) == 1
        reasons = world.bus.latest(FractionDecisions)
        assert reasons is not None
        assert reasons.value.overruled == {"impossible": 1, "unreadable": 1}
        world.live.replace(make_settings(correct_choice=False))
        pods.refused = ""
        held = await world.admit("last", 10, 1)
        pods.put(PodRequest(pod=held.pod, annotations={first: "9"}, containers=(ContainerRequest(name="main"),)))
        await anyio.sleep(0.1)
        await world.start(held)
        assert len(pods.written) == 1


async def test_an_api_server_that_does_not_know_the_pod_is_waited_for_in_bounds(world: World) -> None:
    """Then the container starts without its word; a pod of the same name that is another is no answer."""
    world.pods = FakePods()
    async with world.running():
        held = await world.admit("train", 30, 32)
        request = {"tencent.com/predicate-gpu-idx-0": "1"}
        world.pods.put(PodRequest(pod=replace(held.pod, uid="before"), annotations=request))
        began = anyio.current_time()
        await world.plugin().pre_start(held.cores)
        assert anyio.current_time() - began == pytest.approx(POD_SECONDS)
        assert (await world.start(held)).parts == (part(0, 30, 8),)


async def test_pods_are_followed_again_after_trouble(world: World) -> None:
    """What was known stays known meanwhile."""
    world.pods = FakePods()
    async with world.running():
        held = await world.admit("train", 30, 32)
        world.pods.put(
            PodRequest(
                pod=held.pod,
                annotations={"tencent.com/predicate-gpu-idx-0": "1"},
                containers=(ContainerRequest(name="main"),),
            )
        )
        await anyio.sleep(0.1)
        world.pods.broken = "the API server has hung up"
        world.pods.put()
        await anyio.sleep(1)
        assert (await world.start(held)).parts == (part(1, 30, 8),)
        await anyio.sleep(20)
        begun = world.pods.begun
        assert begun > 2
        world.pods.broken = ""
        await anyio.sleep(20)
        assert world.pods.begun == begun + 1


def choose_gpu(held: Held, gpu: int, *, container: str = "main") -> PodRequest:
    """The pod of a container as the API server has it, with a scheduler's choice on it."""
    annotations = {"tencent.com/predicate-gpu-idx-0": str(gpu)}
    return PodRequest(pod=held.pod, annotations=annotations, containers=(ContainerRequest(name=container),))


async def test_a_start_waits_for_the_first_list_of_pods(world: World) -> None:
    """The agent has just started, and the pod was sent here before that: its choice is obeyed, not overlooked."""
    pods = world.pods = FakePods()
    async with world.keeping():
        world.tell()
        async with world.giving():
            held = await world.admit("train", 30, 32)
        pods.put(choose_gpu(held, 1))
        pods.first_list_seconds = 3.0
        async with world.giving():
            assert (await world.start(held)).parts == (part(1, 30, 8),)


@pytest.mark.parametrize("trouble", ["refused", "silent"])
async def test_a_first_list_that_does_not_come_holds_up_no_start_for_long(world: World, trouble: str) -> None:
    """Whether the API server refuses to list pods or says nothing at all."""
    pods = world.pods = FakePods()
    pods.broken = "the API server is away" if trouble == "refused" else ""
    pods.first_list_seconds = 0.0 if trouble == "refused" else 3600.0
    async with world.running():
        held = await world.admit("train", 30, 32)
        began = anyio.current_time()
        await world.plugin().pre_start(held.cores)
        assert anyio.current_time() - began == pytest.approx(0 if trouble == "refused" else POD_SECONDS)
        assert (await world.start(held)).parts == (part(0, 30, 8),)


async def test_a_watch_that_lags_by_three_seconds_is_waited_for(world: World) -> None:
    """The kubelet hears of the pod first; the choice that the pod carries counts all the same."""
    pods = world.pods = FakePods()
    async with world.running():
        held = await world.admit("train", 30, 32)

        async def put_later() -> None:
            await anyio.sleep(3)
            pods.put(choose_gpu(held, 1))

        async with anyio.create_task_group() as tasks:
            tasks.start_soon(put_later)
            assert (await world.start(held)).parts == (part(1, 30, 8),)


async def test_a_pod_that_is_heard_of_after_its_start_is_corrected(world: World) -> None:
    """Its container had to be given something else than was chosen; the pod says so as soon as it is known."""
    pods = world.pods = FakePods()
    async with world.running():
        held = await world.admit("train", 30, 32)
        await world.start(held)
        pods.put(choose_gpu(held, 1))
        await anyio.sleep(1)
        right = {"tencent.com/predicate-gpu-idx-0": "0", "tencent.com/predicate-gpu-uuid-0": gpu_uuid(0)}
        assert pods.written == [(held.pod, right)]
        said = choose_gpu(held, 1)
        pods.put(replace(said, annotations={**said.annotations, **right}))
        await anyio.sleep(60)
        await world.journal.release(dict.fromkeys(world.table.bindings, "it has ended"))
        pods.put(said)
        await anyio.sleep(60)
        assert len(pods.written) == 1


async def test_a_pod_whose_author_writes_over_a_correction_has_it_written_once_in_a_following(world: World) -> None:
    """Whoever edits a pod without end has the agent write no more often for it; a new list is a new chance."""
    pods = world.pods = FakePods()
    async with world.running():
        held = await world.admit("train", 30, 32)
        await world.start(held)
        for number in range(20):
            said = choose_gpu(held, 1)
            pods.put(replace(said, annotations={**said.annotations, "n": str(number)}))
            await anyio.sleep(1)
        assert len(pods.written) == 1
        pods.broken = "the API server has hung up"
        pods.put()
        await anyio.sleep(1)
        pods.broken = ""
        pods.put(choose_gpu(held, 1))
        await anyio.sleep(20)
        assert len(pods.written) == 2


async def test_pods_without_a_choice_and_pods_of_others_are_left_alone(world: World) -> None:
    """A pod of the same name with another uid is another pod; a container that it does not have is nobody's."""
    pods = world.pods = FakePods()
    async with world.running():
        held = await world.admit("train", 30, 32)
        await world.start(held)
        said = choose_gpu(held, 1)
        for other in (
            replace(said, annotations={}),
            replace(said, pod=replace(held.pod, uid="another")),
            choose_gpu(held, 1, container="other"),
        ):
            pods.put(other)
            await anyio.sleep(1)
        world.live.replace(make_settings(correct_choice=False))
        pods.put(said)
        await anyio.sleep(60)
        assert pods.written == []
