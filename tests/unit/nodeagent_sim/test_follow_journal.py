"""In a real cluster pods work on simulated GPUs, and a GPU that nobody has any more is idle."""

from collections.abc import Callable

import anyio
import pytest
from msgspec.structs import replace

from nodeagent.core.channels.bus import Bus
from nodeagent.model.allocation import Allocation, AllocationTable, PodIdentity
from nodeagent.model.cluster import ClusterNode
from nodeagent.model.ids import DeviceId, ResourceName
from nodeagent.model.plugin import AdvertisedResource, PluginState
from nodeagent_sim.cluster import follow_journal, list_holders
from nodeagent_sim.gpus.profile import load_profile
from nodeagent_sim.gpus.source import SimulatedGpus
from tests.support.virtual_time import FakeClock

PROFILE = load_profile("dgx-h100")
"""Read here, where files may be read."""
SERVED = AdvertisedResource(name=ResourceName("nvidia.com/gpu"), socket="s", registered=True, devices=())
POD = PodIdentity(namespace="ml", name="train", uid="u")


def allot(*devices: str, pod: PodIdentity | None = POD) -> AllocationTable:
    """These devices are a pod's."""
    one = Allocation(
        number=1,
        resource=ResourceName("nvidia.com/gpu"),
        devices=tuple(DeviceId(device) for device in devices),
        since_seconds=0.0,
        pod=pod,
        container="main",
    )
    return AllocationTable(allocations=(one,))


def test_whoever_has_a_device_works_on_it() -> None:
    """A pod, by replicas too and before its name is known."""
    assert list_holders(allot("GPU-0::3")) == {"GPU-0": "ml/train"}
    assert list_holders(allot("GPU-0", pod=None)) == {"GPU-0": "nvidia.com/gpu"}
    assert list_holders(AllocationTable()) == {}


@pytest.mark.virtual_time
@pytest.mark.parametrize("sign", [ClusterNode(name="n", uid="u"), PluginState(resources=(SERVED,))])
async def test_jobs_end_with_the_pods_that_have_the_gpus(clock: FakeClock, sign: object) -> None:
    """Else a change of a MIG layout would wait for jobs that belong to nobody and never leave."""
    bus, gpus = Bus(clock), SimulatedGpus(PROFILE, clock=clock, deadline_seconds=5.0)
    uuids = [gpu.uuid for gpu in (await gpus.read_inventory()).gpus]

    async def wait_busy(is_so: Callable[[list[str]], bool]) -> None:
        for _ in range(60):
            if is_so([one.uuid for one in (await gpus.read_sample()).gpus if one.processes]):
                return
            await anyio.sleep(1)
        pytest.fail("the jobs are others")

    async with anyio.create_task_group() as tasks:
        tasks.start_soon(follow_journal, gpus, bus)
        bus.publish_state(allot(uuids[3]), source="allocations")
        await wait_busy(lambda busy: len(busy) > 1)  # no cluster yet: jobs are there by themselves
        bus.publish_state(PluginState(resources=(replace(SERVED, registered=False),)), source="deviceplugin")
        bus.publish_state(sign, source="cluster")
        await wait_busy(lambda busy: busy == [uuids[3]])
        bus.publish_state(AllocationTable(), source="allocations")
        await wait_busy(lambda busy: not busy)
        tasks.cancel_scope.cancel()
