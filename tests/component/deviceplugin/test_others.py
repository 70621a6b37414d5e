"""Resources that another part answers for, served like those of the device plugin itself."""

from collections.abc import Sequence

import anyio
import pytest
from msgspec.structs import replace

from nodeagent.core.channels.gathered import Gathered
from nodeagent.model.fractions import FractionOffers
from nodeagent.model.health import Verdict
from nodeagent.model.ids import DeviceId, ResourceName
from nodeagent.model.offering import AllocationMode
from nodeagent.model.plugin import AdvertisedDevice, ContainerAnswer, OfferSummary, PluginOptions, PluginState
from tests.component.deviceplugin.harness import GPU, TWO, World, held, report
from tests.component.deviceplugin.test_lists import doors
from tests.support.gpus import gpu_uuid
from tests.support.virtual_time import FakeClock

pytestmark = pytest.mark.virtual_time

CORES = ResourceName("x.com/cores")
OFFERS = FractionOffers(resources=(CORES,), unfit={gpu_uuid(1): ""})
DOORS = doors((AllocationMode.WHOLE, True), (AllocationMode.FRACTIONS, True))
HEALTH = report(g0=Verdict.HEALTHY, g1=Verdict.HEALTHY)


class OtherPlugin:
    """Counts to ten."""

    options = PluginOptions(pre_start=True)

    def __init__(self, resource: ResourceName = CORES) -> None:
        self.resource = resource
        self.devices = Gathered(tuple(AdvertisedDevice(id=DeviceId(f"c{n}"), healthy=True) for n in range(10)))

    async def wait_devices(self, known: tuple[AdvertisedDevice, ...] | None) -> tuple[AdvertisedDevice, ...]:
        return await self.devices.wait_other(known, 0.01)

    def prefer(self, available: Sequence[DeviceId], must_include: Sequence[DeviceId], size: int) -> Sequence[DeviceId]:
        raise NotImplementedError

    async def allocate(self, devices: Sequence[DeviceId]) -> ContainerAnswer:
        raise NotImplementedError

    async def pre_start(self, devices: Sequence[DeviceId]) -> None:
        raise NotImplementedError


def read_account(world: World) -> OfferSummary:
    state = world.bus.latest(PluginState)
    assert state is not None
    assert state.value.account is not None
    return state.value.account


async def test_they_are_served_as_long_as_they_are_there(world: World) -> None:
    """Beside the GPUs that are given whole; what is not there any more is taken off."""
    plugin = OtherPlugin()
    async with world.running():
        await world.publish(TWO, HEALTH, DOORS)
        assert world.serving.begun == [GPU]
        world.others.plugins[CORES] = plugin
        await world.publish(OFFERS)
        assert world.serving.plugins[CORES] is plugin
        assert len(world.serving.newest(CORES)) == 10
        state = world.bus.latest(PluginState)
        assert state is not None
        assert [(each.name, each.socket) for each in state.value.resources] == [
            (GPU, "nvidia-gpu.sock"), (CORES, "x.com-cores.sock")
        ]  # fmt: skip
        (first, *rest) = plugin.devices.value
        plugin.devices.put((replace(first, healthy=False), *rest))
        await world.settle()
        assert list(world.serving.newest(CORES).values()).count(False) == 1
        del world.others.plugins[CORES]
        await world.publish(FractionOffers())
        assert world.serving.plugins.keys() == {GPU}
        assert world.details("plugin-not-registered") == {}


async def test_gpus_in_parts_are_offered_when_the_kubelet_knows_of_them(world: World) -> None:
    """Until then, and while nothing of one can be had, the account says why."""
    world.others.plugins[CORES] = OtherPlugin()
    async with world.running():
        await world.publish(TWO, HEALTH, DOORS)
        assert world.details("gpu-door").keys() == {gpu_uuid(1)}
        await world.publish(OFFERS)
        account = read_account(world)
        assert (account.gpus, account.devices_offered, account.gpus_offered) == (2, 2, 2)
        assert world.details("gpu-door") == {}
        await world.publish(replace(OFFERS, unfit={gpu_uuid(1): "xid 79"}))
        assert world.details("gpu-not-offered") == {gpu_uuid(1): "GPU 1: xid 79"}
        await world.publish(replace(OFFERS, resources=(CORES, ResourceName("x.com/blocks"))))
        assert "has not been told" in world.details("gpu-not-offered")[gpu_uuid(1)]


async def test_one_name_for_whole_gpus_and_parts_is_a_problem(world: World) -> None:
    """The kubelet could not tell them apart: whoever was first is served, and the remedy is said."""
    async with world.running():
        await world.publish(TWO, HEALTH, DOORS)
        world.others.plugins[GPU] = OtherPlugin(GPU)
        await world.publish(replace(OFFERS, resources=(GPU,)))
        assert world.serving.plugins[GPU] is not world.others.plugins[GPU]
        assert "whole and in parts by this name" in world.details("plugin-devices-withheld")[GPU]
        del world.others.plugins[GPU]
        await world.publish(FractionOffers())
        assert world.details("plugin-devices-withheld") == {}
        assert world.serving.begun == [GPU]


async def test_a_name_that_was_anothers_first_is_not_served_twice(world: World) -> None:
    """Also when GPUs are to be given whole by it later."""
    plugin = world.others.plugins[GPU] = OtherPlugin(GPU)
    async with world.running():
        await world.publish(TWO, HEALTH, doors((AllocationMode.NONE, False), (AllocationMode.FRACTIONS, True)), OFFERS)
        assert world.serving.plugins[GPU] is plugin
        await world.publish(DOORS)
        assert world.serving.plugins[GPU] is plugin
        assert GPU in world.details("plugin-devices-withheld")


async def test_others_that_need_no_gpus_are_served_before_there_are_any(clock: FakeClock) -> None:
    """This part's own resources wait; a device that is held of another's resource is left to the other."""
    gpus = anyio.Event()
    world = World(clock)
    world.wait_for_gpus = gpus.wait
    world.others.plugins[CORES] = OtherPlugin()
    async with world.running():
        assert world.serving.begun == [CORES]
        await world.publish(TWO, HEALTH, held(CORES, "c1"))
        assert world.serving.begun == [CORES]
        assert not world.ready.is_set()
        gpus.set()
        await world.settle()
        assert world.serving.begun == [CORES, GPU]
        assert world.ready.is_set()
        assert len(world.serving.newest(CORES)) == 10


async def test_a_resource_that_was_kept_for_its_holders_goes_back_to_who_offers_it(world: World) -> None:
    """As when a class is taken out of the configuration and put back while somebody has a device of it."""
    async with world.running():
        await world.publish(TWO, HEALTH, held(CORES, "c1"))
        assert list(world.serving.newest(CORES).values()) == [False]
        world.others.plugins[CORES] = OtherPlugin()
        await world.publish(OFFERS)
        await world.settle()
        assert len(world.serving.newest(CORES)) == 10
