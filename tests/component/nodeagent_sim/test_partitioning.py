"""The simulation's door for partitions: the same port as the real one, and as slow as it is told to be."""

import anyio
import pytest

from nodeagent.model.errors import DriverStuck, PartitionRefused
from nodeagent.model.mig import Write, WriteKind
from nodeagent_sim.gpus.profile import load_profile
from nodeagent_sim.gpus.source import SimulatedGpus
from tests.support.virtual_time import FakeClock

pytestmark = pytest.mark.virtual_time

H100 = load_profile("dgx-h100")


async def test_a_gpu_is_cut_through_a_session(clock: FakeClock) -> None:
    """What is made is there at the next look, the driver reports it, and a refusal is the port's."""
    gpus = SimulatedGpus(H100, clock=clock, deadline_seconds=5.0)
    gpus.set_holders({})
    await anyio.sleep(1)  # or the mode would wait for those who use the GPU
    events = gpus.events()
    gpu = (await gpus.read_inventory()).gpus[1]
    async with gpus.begin() as session:
        await session.write(gpu, Write(kind=WriteKind.MODE_ON))
        instance = await session.write(gpu, Write(kind=WriteKind.CREATE, profile_id=9, start=4))
        await session.write(gpu, Write(kind=WriteKind.CREATE_COMPUTE, slices=3))
        found = await session.read(gpu)
        assert [(one.id, one.start, len(one.computes)) for one in found.instances] == [(instance, 4, 1)]
        with pytest.raises(PartitionRefused, match=r"cannot create GPU instance unnamed at slot 4: out of a critical"):
            await session.write(gpu, Write(kind=WriteKind.CREATE, profile_id=9, start=4))
    after = (await gpus.read_inventory()).gpus[1]
    assert [device.profile for device in after.mig_devices] == ["3g.40gb"]
    assert {(await anext(events)).gpu for _ in range(3)} == {gpu.uuid}


async def test_a_call_that_hangs_is_given_up(clock: FakeClock) -> None:
    gpus = SimulatedGpus(H100, clock=clock, deadline_seconds=5.0)
    gpu = (await gpus.read_inventory()).gpus[0]
    await gpus.inject("hang", ["partition"])
    async with gpus.begin() as session:
        with pytest.raises(DriverStuck):
            await session.write(gpu, Write(kind=WriteKind.MODE_ON))
        with pytest.raises(DriverStuck):
            await session.read(gpu)
