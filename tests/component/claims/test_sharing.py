"""Claims that have a GPU in part: MIG devices made for them, daemons, time slices, and shares of what a GPU has."""

import anyio
import pytest
from msgspec.structs import replace

from tests.component.claims.harness import World
from tests.support.claims import (
    POD,
    gpu_config,
    make_claim,
    make_config,
    make_reference,
    make_result,
)
from tests.support.gpus import gpu_uuid
from tests.unit.components.claims.test_prepare import cuttable

pytestmark = pytest.mark.virtual_time


async def test_a_mig_device_is_made_for_a_claim_and_goes_with_it(world: World) -> None:
    """What was begun is written down first, so that an agent that dies half way knows what to take away."""
    world.inventory = replace(world.inventory, gpus=(replace(cuttable(0), minor=0),))
    assert world.api is not None
    world.api.put(make_claim(make_result("gpu-0-mig-1g10gb-19-2")))
    async with world.running():
        world.partitions.broken = "the driver refuses"
        assert await world.prepare() == {"claim-1": "the driver refuses"}
        assert [each.is_ready for each in world.prepared.values()] == [False]
    world.partitions.broken = ""
    async with world.running():
        assert world.specs.files == {}
        answers = (await world.prepare())["claim-1"]
        assert not isinstance(answers, str)
        assert [each.device for each in answers] == ["gpu-0-mig-1g10gb-19-2"]
        key = "claim-1/gpu-0-mig-1g10gb-19-2"
        assert list(world.partitions.made) == [key]
        assert [each.uuid for each in world.specs.files["claim-1"]] == ["MIG-1g10gb-19-2"]
        assert [each.is_ready for each in world.prepared.values()] == [True]
        world.partitions.broken = "in use"
        assert await world.unprepare() == {"claim-1": "cannot be put away: in use"}
        assert sorted(world.prepared) == ["claim-1"]
        world.partitions.broken = ""
        assert await world.unprepare() == {"claim-1": ""}
        assert (world.partitions.made, world.prepared) == ({}, {})


async def test_containers_of_a_claim_share_its_gpus_through_a_daemon_of_its_own(world: World) -> None:
    """They are told where it is; it ends with the claim."""
    mps = gpu_config({"strategy": "MPS", "mpsConfig": {"defaultActiveThreadPercentage": 50}})
    assert world.api is not None
    results = (make_result(), make_result("gpu-1", "other"))
    world.api.put(make_claim(*results, configs=(make_config(mps, "gpu"),)))
    async with world.running():
        world.mps.broken = "somebody still computes on it"
        assert await world.prepare() == {"claim-1": "somebody still computes on it"}
        world.mps.broken = ""
        await world.prepare()
        ((gpus, limits),) = world.mps.open["claim-1"]
        assert (gpus, limits.thread_percentage) == ((gpu_uuid(0),), 50)
        shared, whole = world.specs.files["claim-1"]
        assert "CUDA_MPS_PIPE_DIRECTORY" in shared.environment
        assert len(shared.mounts) == 1
        assert (whole.environment, whole.mounts) == ({}, ())
        await world.unprepare()
        assert world.mps.open == {}


async def test_a_time_slice_is_set_for_a_claim_and_given_back_with_it(world: World) -> None:
    """An agent that starts again sets it again, for the driver may have forgotten; a GPU that is lost keeps no pod."""
    turns = gpu_config({"strategy": "TimeSlicing", "timeSlicingConfig": {"interval": "Long"}})
    assert world.api is not None
    results = (make_result(), make_result("gpu-1", "other"), make_result("gpu-2", "other"))
    world.api.put(make_claim(*results, configs=(make_config(turns, "other"),)))
    first, second = gpu_uuid(1), gpu_uuid(2)
    async with world.running():
        world.broken_tool = "nvidia-smi ended with 1"
        assert await world.prepare() == {"claim-1": "nvidia-smi ended with 1"}
        assert [each.is_ready for each in world.prepared.values()] == [False]
        world.broken_tool = ""
        await world.prepare()
        assert world.slices == {first: 3, second: 3}
    world.slices.clear()
    gpus = [replace(gpu, lost="fell off the bus") if gpu.uuid == second else gpu for gpu in world.inventory.gpus]
    world.inventory = replace(world.inventory, gpus=tuple(gpus))
    async with world.running():
        await anyio.sleep(0.1)
        assert world.slices == {first: 3}
        world.broken_tool = "nvidia-smi ended with 1"
        assert await world.unprepare() == {"claim-1": "cannot be put away: nvidia-smi ended with 1"}
        world.broken_tool = ""
        assert await world.unprepare() == {"claim-1": ""}
        assert world.slices == {first: 0}


async def give_turn(world: World) -> None:
    """A claim that another life of the agent has given a long time slice."""
    turns = gpu_config({"strategy": "TimeSlicing", "timeSlicingConfig": {"interval": "Long"}})
    assert world.api is not None
    world.api.put(make_claim(make_result(), configs=(make_config(turns),)))
    async with world.running():
        await world.prepare()
        assert world.slices == {gpu_uuid(0): 3}


async def test_before_gpus_are_known_a_claim_with_a_time_slice_is_put_away(world: World) -> None:
    """A pod must be able to end; after a boot the driver has its own."""
    await give_turn(world)
    dark = World(world.clock)
    dark.store = world.store
    async with dark.keeping(), dark.serving():
        assert await dark.unprepare() == {"claim-1": ""}
        assert dark.slices == {}


async def test_a_time_slice_is_given_back_though_the_agent_has_just_started(world: World) -> None:
    """It outlives the agent, and whoever has the GPU next would have it too."""
    await give_turn(world)
    again = World(world.clock)
    again.store = world.store
    async with again.keeping(), again.serving(), anyio.create_task_group() as tasks:
        tasks.start_soon(again.unprepare)
        await anyio.sleep(1)
        again.tell()
        await anyio.sleep(1)
        assert (again.slices, again.prepared) == ({gpu_uuid(0): 0}, {})


async def test_what_was_made_by_parts_that_are_off_now_is_not_forgotten(world: World) -> None:
    world.inventory = replace(world.inventory, gpus=(replace(cuttable(0), minor=0), *world.inventory.gpus[1:]))
    assert world.api is not None
    mps = make_config(gpu_config({"strategy": "MPS"}), "gpu")
    world.api.put(make_claim(make_result("gpu-0-mig-1g10gb-19-2", "mig")))
    world.api.put(make_claim(make_result("gpu-1"), uid="claim-2", name="c2", configs=(mps,)))
    turns = gpu_config({"strategy": "TimeSlicing", "timeSlicingConfig": {"interval": "Medium"}})
    world.api.put(make_claim(make_result("gpu-2"), uid="claim-3", name="c3", configs=(make_config(turns, "gpu"),)))
    both = (make_reference(), make_reference("claim-2", "c2"), make_reference("claim-3", "c3"))
    async with world.running():
        await world.prepare(*both)
    world.makers = world.makers._replace(partitions=None, mps=None, turns=None)
    async with world.running():
        for answers in (await world.prepare(*both), await world.unprepare(*both)):
            assert "`mig.manage`" in str(answers["claim-1"])
            assert "`mps.claims`" in str(answers["claim-2"])
            assert "`claims.time_slices`" in str(answers["claim-3"])
        assert len(world.prepared) == 3


async def test_who_only_looks_at_a_gpu_keeps_nobody_out_and_is_kept_out_by_nobody(world: World) -> None:
    """Whoever comes first, and whichever door the GPU has; who looks has the device under a name of its own."""
    assert world.api is not None
    looking = make_claim(make_result(is_admin=True), uid="claim-2", name="c2")
    world.api.put(make_claim(make_result()), looking)
    world.api.alive.add(POD.uid)
    owner, other = make_reference(), make_reference("claim-2", "c2")
    async with world.running():
        for first, second in ((owner, other), (other, owner)):
            for reference in (first, second):
                answer = (await world.prepare(reference))[reference.uid]
                assert not isinstance(answer, str), answer
                assert [device.cdi_names for device in answer] == [(f"k8s.gpu.nvidia.com/claim={reference.uid}-gpu-0",)]
            assert [each.uuid for files in world.specs.files.values() for each in files] == [gpu_uuid(0)] * 2
            assert await world.unprepare(first) == {first.uid: ""}
            assert list(world.prepared) == list(world.specs.files) == [second.uid]
            await world.unprepare(second)
        world.tell(is_open=False)
        assert "is not given by claims now" in str((await world.prepare(owner))["claim-1"])
        assert not isinstance((await world.prepare(other))["claim-2"], str)


async def test_claims_share_a_gpu_within_what_it_has(world: World) -> None:
    """Each with a folder of its own; one for which there is no room is refused, and what was there before ends."""
    assert world.api is not None
    gpus = tuple(replace(gpu, memory_total_bytes=80 << 30) for gpu in world.inventory.gpus)
    world.inventory = replace(world.inventory, gpus=gpus)
    references = []
    for number, memory in enumerate(("30Gi", "40Gi", "20Gi")):
        result = make_result(share_id=f"s{number}", consumed={"memory": memory, "cores": "30"})
        world.api.put(make_claim(result, uid=f"u{number}", name=f"c{number}"))
        references.append(make_reference(f"u{number}", f"c{number}"))
    async with world.running():
        answers = [(await world.prepare(each))[each.uid] for each in references]
        assert [isinstance(each, str) for each in answers] == [False, False, True]
        assert "would be 96636764160 bytes of memory of" in str(answers[2])
        assert sorted(world.folders.limits) == ["u0", "u1"]
        assert [len(each[0].mounts) for each in world.specs.files.values()] == [2, 2]
        await world.unprepare(references[0])
        assert not isinstance((await world.prepare(references[2]))["u2"], str)
        assert sorted(world.folders.limits) == ["u1", "u2"]
    world.makers = world.makers._replace(shares=None, gives_shares=False)
    async with world.running():
        assert "nobody here holds containers to theirs" in str(await world.prepare(references[1]))
        assert await world.unprepare(*references[1:]) == {"u1": "", "u2": ""}
