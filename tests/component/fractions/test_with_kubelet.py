"""Parts of GPUs and whole ones on real sockets and a real disk, with the stand-in kubelet."""

from collections import Counter
from functools import partial
from pathlib import Path
from random import Random

import anyio
import pytest

from nodeagent.model.journal import FractionTable, GpuFraction
from nodeagent_sim.kubelet.pods import ContainerStartFailed, Pod, PodPhase
from tests.component.fractions.node import GPU, MEMORY_BYTES, Agent, Given, node, run_pod
from tests.support.gpus import gpu_uuid
from tests.support.journals import CORE, MEMORY
from tests.support.waiting import in_thread

BLOCK = 256 << 20
SIZES = ((1, 2), (3, 8), (2, 4))


def check_pod(agent: Agent, pod: Pod, given: Given) -> None:
    """What its container finds is what it asked for, on one GPU, as the journal says it."""
    (spec,) = [each for each in pod.containers if not each.init]
    assert len(given.gpus) == 1
    if GPU in spec.resources:
        assert given.limits == ()
        return
    binding, memory = agent.binding(pod.name), spec.resources[MEMORY] * BLOCK
    assert binding.pod.uid in {pod.uid, ""}
    assert binding.parts == (GpuFraction(gpu=binding.parts[0].gpu, cores=spec.resources[CORE], memory_bytes=memory),)
    assert given.gpus == (binding.parts[0].gpu,)
    (limit,) = given.limits
    assert (limit.uuid, limit.core_percent, limit.memory_bytes) == (given.gpus[0], spec.resources[CORE], memory)


def lose_files(agent: Agent, given: Given) -> None:
    """As if the disk had been cleaned."""
    for path in (*agent.cdi_dir.glob("*part-*"), Path(given.folder)):
        path.unlink()


def lose_journal(agent: Agent) -> None:
    """The folders of containers stay: they are mounted."""
    for path in agent.state_dir.iterdir():
        if path.is_file():
            path.unlink()


def check_node(agent: Agent) -> None:
    """Each container has its own, none has another's limits, and no GPU is given more than once."""
    everything = agent.read_all()
    folders = Counter[str]()
    cores, memory, wholes = Counter[str](), Counter[str](), Counter[str]()
    for pod in agent.kubelet.pods:
        given = everything[pod.uid, "main"]
        check_pod(agent, pod, given)
        wholes.update(given.gpus if not given.limits else ())
        for limit in given.limits:
            folders[given.folder] += 1
            cores[limit.uuid] += limit.core_percent or 100
            memory[limit.uuid] += limit.memory_bytes or MEMORY_BYTES
    assert max(folders.values()) == 1
    assert max(cores.values()) <= 100
    assert max(memory.values()) <= MEMORY_BYTES
    assert max(wholes.values(), default=0) <= 1
    assert not wholes.keys() & cores.keys()


@pytest.mark.nightly
async def test_two_hundred_pods_on_a_mixed_node_while_agent_and_kubelet_come_and_go(short_dir: Path) -> None:
    """In shuffled order, many of them alike, whole GPUs among them: each has what it asked for, nobody another's."""
    sizes = [SIZES[number % len(SIZES)] for number in range(196)]
    requests = [{str(CORE): cores, str(MEMORY): blocks} for cores, blocks in sizes]
    wanted = [*requests, *[{GPU: 1}] * 4]
    Random(21).shuffle(wanted)
    async with node(short_dir, 4, 5, 6, 7) as (kubelet, agent), anyio.create_task_group() as pods:

        def count_running() -> int:
            return sum(pod.phase is PodPhase.RUNNING for pod in kubelet.pods)

        for number, resources in enumerate(wanted):
            pods.start_soon(run_pod, agent, f"p{number:03}", resources)
        async with agent.running():
            await kubelet.wait_until(lambda: count_running() >= 50)
        async with agent.running():
            await kubelet.wait_until(lambda: count_running() >= 100)
            await kubelet.restart()
            await kubelet.wait_until(lambda: count_running() == len(wanted))
            await in_thread(partial(check_node, agent))
            assert len(agent.table.bindings) == 196
            await agent.wait_named()
            before = agent.table.bindings
        async with agent.running():
            assert agent.table.bindings == before


async def test_racing_alike_pods_have_their_own_each(short_dir: Path) -> None:
    """Eight identical pods at once: nothing is swapped, for nobody is guessed."""
    async with node(short_dir) as (kubelet, agent), agent.running():
        async with anyio.create_task_group() as tasks:
            for number in range(8):
                tasks.start_soon(partial(run_pod, agent, f"racer-{number}", {CORE: 60, MEMORY: 100}))
        assert len(kubelet.pods) == len(agent.table.bindings) == 8
        await in_thread(partial(check_node, agent))
        assert Counter(part.gpu for each in agent.table.bindings.values() for part in each.parts) == Counter(
            gpu_uuid(index) for index in range(8)
        )


async def test_a_container_that_starts_again_has_what_it_had(short_dir: Path) -> None:
    """Also after the agent and the kubelet were gone, and when its files were lost meanwhile."""
    async with node(short_dir) as (kubelet, agent):
        async with agent.running():
            pod = await kubelet.add_pod("team", "train", {CORE: 60, MEMORY: 100})
            await agent.wait_named()
            before, given = agent.binding("train"), await in_thread(partial(agent.read_given, pod.uid, "main"))
            await kubelet.start_containers("team", "train")
            assert agent.binding("train") == before
        await in_thread(partial(lose_files, agent, given))
        await kubelet.restart()
        async with agent.running():
            await kubelet.start_containers("team", "train")
            assert agent.binding("train") == before
            await in_thread(partial(check_node, agent))


async def test_a_lost_journal_is_rebuilt_from_what_others_know(short_dir: Path) -> None:
    """The kubelet's notes say who has which ids and names, the folders how much: nothing is given twice afterwards."""
    async with node(short_dir, 6, 7) as (kubelet, agent):
        async with agent.running():
            inits: tuple[dict[str, int], ...] = ({}, {CORE: 30, MEMORY: 40}, {CORE: 90, MEMORY: 4})
            for number, init in enumerate(inits):
                await kubelet.add_pod("team", f"p{number}", {CORE: 30, MEMORY: 40}, init_resources=init)
            await agent.wait_named()
            before = {each.pod: (each.parts, each.cdi_name) for each in agent.table.bindings.values()}
        await in_thread(partial(lose_journal, agent))
        async with agent.running():
            with agent.bus.watch(FractionTable, client="test") as tables:
                async for table in tables:
                    if len(table.value.bindings) == 3:
                        break
            assert {each.pod: each.parts for each in agent.table.bindings.values()} == {
                pod: parts for pod, (parts, _) in before.items()
            }
            for number in range(3):
                await kubelet.start_containers("team", f"p{number}")
            await in_thread(partial(check_node, agent))


async def test_without_room_a_pod_is_not_failed_and_starts_when_there_is_some(short_dir: Path) -> None:
    """The kubelet counts blocks of all GPUs; none has so many left in one place, and that is what is said."""
    async with node(short_dir, 6, 7) as (kubelet, agent), agent.running():
        for name in ("first", "second"):
            await kubelet.add_pod("team", name, {CORE: 20, MEMORY: 200})
        with pytest.raises(ContainerStartFailed, match="no room for 20 cores and 50 GiB of memory of one GPU"):
            await kubelet.add_pod("team", "third", {CORE: 20, MEMORY: 200})
        assert [each.key for each in agent.conditions.all_set() if each.code == "part-no-room"] == ["team/third (main)"]
        waiting = next(pod for pod in kubelet.pods if pod.name == "third")
        assert waiting.phase is not PodPhase.FAILED
        await agent.end_pod("first")
        await kubelet.start_containers("team", "third")
        await in_thread(partial(check_node, agent))
        assert not [each for each in agent.conditions.all_set() if each.code == "part-no-room"]


@pytest.mark.parametrize(
    "setup", [{CORE: 60, MEMORY: 100}, {CORE: 10, MEMORY: 4}, {CORE: 80, MEMORY: 200}, {CORE: 10, MEMORY: 200}]
)
async def test_init_containers_hand_their_ids_on(short_dir: Path, setup: dict[str, int]) -> None:
    """Whether they had as much as the container after them, less or more: both find what their names mean."""
    async with node(short_dir, 7) as (kubelet, agent), agent.running():
        pod = await kubelet.add_pod("team", "train", {CORE: 60, MEMORY: 100}, init_resources=setup)
        (binding,) = agent.table.bindings.values()
        assert binding.parts == (GpuFraction(gpu=gpu_uuid(7), cores=60, memory_bytes=100 * BLOCK),)
        given = await in_thread(partial(agent.read_given, pod.uid, "main"))
        (limit,) = given.limits
        assert (limit.core_percent, limit.memory_bytes) == (60, 100 * BLOCK)
        if setup == {CORE: 60, MEMORY: 100}:
            before = await in_thread(partial(agent.read_given, pod.uid, "setup"))
            assert before.folder == given.folder
        assert await in_thread(lambda: len(list((agent.state_dir / "parts").glob("*/limits")))) == 1


async def test_a_gpu_goes_from_whole_to_parts_and_back_while_pods_run(short_dir: Path) -> None:
    """Each way it waits for those who have it; meanwhile nobody new gets anything of it."""
    async with node(short_dir, 5, 6, 7) as (kubelet, agent), agent.running():
        assert kubelet.offers()[CORE].allocatable == 300
        await kubelet.add_pod("team", "parts", {CORE: 30, MEMORY: 8})
        (part,) = agent.binding("parts").parts
        await agent.wait_named()
        said = await agent.choose(str(part.gpu), "whole")
        assert "until team/parts (main) is gone" in said
        await kubelet.wait_until(lambda: kubelet.offers()[CORE].allocatable == 200)
        await kubelet.start_containers("team", "parts")
        await agent.end_pod("parts")
        await kubelet.wait_until(lambda: kubelet.offers()[GPU].allocatable == 6)
        await agent.choose(str(part.gpu), "configured")
        await kubelet.wait_until(lambda: kubelet.offers()[CORE].allocatable == 300)
