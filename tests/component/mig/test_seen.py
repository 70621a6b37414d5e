"""What came of a change may be seen before anybody waits for it, and is recognised all the same."""

import anyio
import pytest

from nodeagent.model.errors import DriverUnavailable
from nodeagent.model.ids import GpuUuid
from nodeagent.model.mig import GpuPartitions, Write, WriteKind
from tests.component.mig.harness import World
from tests.support.virtual_time import FakeClock

pytestmark = pytest.mark.virtual_time


@pytest.mark.parametrize("answers", [True, False])
async def test_a_gpu_that_was_seen_half_way_before_anybody_waited_for_it_keeps_nobody(
    clock: FakeClock, monkeypatch: pytest.MonkeyPatch, answers: bool
) -> None:
    """Nor does one of which the driver does not say any more how it is."""
    world = World(clock)
    async with world.running():
        world.is_blind = True
        write_partition, read_partitions = world.gpus.write_partition, world.gpus.read_partitions
        ended: list[float] = []

        async def write_and_look(gpu: GpuUuid, write: Write) -> int:
            try:
                return await write_partition(gpu, write)
            finally:
                await world.look()
                if write.kind is WriteKind.DESTROY:
                    ended.append(anyio.current_time())

        async def read_until_then(gpu: GpuUuid) -> GpuPartitions:
            if ended and not answers:
                raise DriverUnavailable("read partitions", "it hangs")
            return await read_partitions(gpu)

        monkeypatch.setattr(world.gpus, "write_partition", write_and_look)
        monkeypatch.setattr(world.gpus, "read_partitions", read_until_then)
        await world.gpus.inject("mig-refuse", ["create-compute"])
        await world.gpus.inject("mig-refuse", ["destroy"])
        world.ask("all-balanced")
        await world.until_standing("failed")
        assert world.codes() == {"mig-change-failed", "mig-half-way"}
        assert anyio.current_time() == ended[-1]
