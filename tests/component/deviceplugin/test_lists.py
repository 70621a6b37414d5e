"""What the kubelet is told unasked, and which resources are served, on virtual time."""

import anyio
import pytest
from msgspec.structs import replace

from nodeagent.config.schema import Settings
from nodeagent.config.sections.hardware import GpusSettings
from nodeagent.config.sections.plugin import DevicePluginSettings
from nodeagent.model.allocation import AllocationTable
from nodeagent.model.cordons import Cordon, CordonSource
from nodeagent.model.driver import DriverPhase, DriverState
from nodeagent.model.errors import DeviceUnhealthy, DeviceUnknown
from nodeagent.model.events import DevicesAdvertised
from nodeagent.model.gpu import Inventory
from nodeagent.model.health import Verdict
from nodeagent.model.offering import AllocationMode, GpuAllocationMode, ModeHolder, Offering
from nodeagent.model.plugin import HandoutFacts, OfferSummary, PluginState
from tests.component.deviceplugin.harness import GPU, SHARED, TWO, World, held, ids, report, slicing
from tests.support.gpus import gpu_uuid, make_gpu, make_inventory, make_node
from tests.support.samples import make_address
from tests.support.virtual_time import FakeClock

pytestmark = pytest.mark.virtual_time


async def test_ready_when_the_kubelet_knows_every_resource(world: World) -> None:
    """Until there is an inventory nothing is served, and until it is registered the part is not ready."""
    world.serving.may_register = False
    async with world.running():
        assert world.serving.plugins == {}
        await world.publish(TWO)
        assert world.serving.newest() == {"0": True, "1": True}
        assert not world.ready.is_set()
        assert world.details("plugin-not-registered").keys() == {GPU}
        world.serving.may_register = True
        await world.publish(make_inventory([make_gpu(0)]))
        assert world.ready.is_set()
        assert world.details("plugin-not-registered") == {}


async def test_a_node_without_gpus_is_ready(world: World) -> None:
    """Nothing to offer is no fault."""
    async with world.running():
        await world.publish(make_inventory([]))
        assert world.ready.is_set()
        assert world.serving.begun == []


async def test_what_the_kubelet_was_told_is_published(world: World) -> None:
    """State and fact say what was sent."""
    async with world.running():
        await world.publish(TWO)
        state = world.bus.latest(PluginState)
        assert state is not None
        (resource,) = state.value.resources
        assert (resource.name, resource.socket, resource.registered) == (GPU, "nvidia-gpu.sock", True)
        assert len(resource.devices) == 2
        facts = [each.value for each in world.bus.history() if isinstance(each.value, DevicesAdvertised)]
        assert facts == [DevicesAdvertised(resource=GPU, healthy=2, total=2)]


async def test_health_goes_to_the_kubelet_both_ways(world: World) -> None:
    """A verdict takes a device off, another brings it back, and nothing else changes."""
    async with world.running():
        await world.publish(TWO, report(g0=Verdict.HEALTHY, g1=Verdict.HEALTHY))
        await world.publish(report(g0=Verdict.UNHEALTHY, g1=Verdict.HEALTHY))
        assert world.serving.newest() == {"0": False, "1": True}
        await world.publish(report(g0=Verdict.HEALTHY, g1=Verdict.HEALTHY))
        assert world.serving.newest() == {"0": True, "1": True}


async def test_changes_within_the_window_are_one_list(world: World) -> None:
    """A storm of verdicts is gathered, and the list goes out no later than the window after the first of them."""
    async with world.running():
        await world.publish(make_node(8), report(**{f"g{index}": Verdict.HEALTHY for index in range(8)}))
        sent = len(world.serving.lists[GPU])
        began = anyio.current_time()
        for bad in range(1, 9):
            verdicts = {f"g{index}": Verdict.UNHEALTHY if index < bad else Verdict.HEALTHY for index in range(8)}
            world.bus.publish_state(report(**verdicts), source="test")
            await anyio.sleep(0.005)
        await world.settle()
        lists = world.serving.lists[GPU][sent:]
        assert len(lists) == 1
        assert lists[0][0] - began == pytest.approx(0.05, abs=0.001)
        assert not any(device.healthy for device in lists[0][1])


async def test_a_change_that_is_taken_back_is_not_sent(world: World) -> None:
    """A flicker within the window costs the kubelet nothing."""
    async with world.running():
        await world.publish(TWO, report(g0=Verdict.HEALTHY, g1=Verdict.HEALTHY))
        sent = len(world.serving.lists[GPU])
        world.bus.publish_state(report(g0=Verdict.UNHEALTHY, g1=Verdict.HEALTHY), source="test")
        await anyio.sleep(0.01)
        await world.publish(report(g0=Verdict.HEALTHY, g1=Verdict.HEALTHY))
        assert len(world.serving.lists[GPU]) == sent


async def test_a_reload_keeps_the_resources_that_stay(world: World) -> None:
    """Other shares of the same resource go to the kubelet as a new list, on the stream it has."""
    async with world.running():
        await world.publish(TWO)
        await world.reload(slicing(2))
        assert world.serving.begun == [GPU]
        assert world.serving.newest() == {"0::0": True, "0::1": True, "1::0": True, "1::1": True}
        assert all(any(device.healthy for device in devices) for _, devices in world.serving.lists[GPU])


async def test_a_resource_that_goes_ends_and_another_begins(world: World) -> None:
    """A renamed resource is served under its new name, the old one no longer."""
    async with world.running():
        await world.publish(TWO)
        await world.reload(slicing(2, rename=True))
        assert list(world.serving.plugins) == [SHARED]
        state = world.bus.latest(PluginState)
        assert state is not None
        assert [resource.name for resource in state.value.resources] == [SHARED]
        assert world.details("plugin-not-registered") == {}


async def test_a_resource_that_comes_back_waits_for_the_end_of_its_first_life(world: World) -> None:
    """Two servers of one name would take each other's socket: the second begins when the first has ended."""
    world.serving.ends_after_seconds = 5.0
    async with world.running():
        await world.publish(TWO)
        await world.reload(slicing(2, rename=True))
        await world.reload(Settings())
        assert world.serving.begun.count(GPU) == 1
        await anyio.sleep(5)
        assert world.serving.begun.count(GPU) == 2
        assert world.serving.newest() == {"0": True, "1": True}


@pytest.mark.parametrize(
    ("phase", "healthy"),
    [
        (DriverPhase.READY, True),
        (DriverPhase.STUCK, True),
        (DriverPhase.RELEASED, False),
        (DriverPhase.VERSION_MISMATCH, False),
    ],
)
async def test_without_a_driver_nothing_is_handed_out(world: World, phase: DriverPhase, *, healthy: bool) -> None:
    """Devices go with the driver and come back with it, on the same stream; a stuck call is for health to judge."""
    async with world.running():
        await world.publish(TWO, DriverState(phase=phase, detail="in words"))
        assert world.serving.newest() == {"0": healthy, "1": healthy}
        if not healthy:
            with pytest.raises(DeviceUnhealthy, match="the driver is not ready: in words"):
                await world.serving.plugins[GPU].allocate(ids(0))
        await world.publish(DriverState(phase=DriverPhase.READY))
        assert world.serving.newest() == {"0": True, "1": True}
        assert world.serving.begun == [GPU]


async def test_a_resource_that_containers_hold_is_served_to_the_end(world: World) -> None:
    """Without its plugin the kubelet could not restart their containers; its devices are shown, not offered."""
    async with world.running():
        await world.publish(TWO, held(GPU, gpu_uuid(1)))
        await world.reload(slicing(2, rename=True))
        assert set(world.serving.plugins) == {GPU, SHARED}
        assert world.serving.newest(GPU) == {"1": False}
        await world.serving.plugins[GPU].pre_start(ids(1))
        with pytest.raises(DeviceUnknown):
            await world.serving.plugins[GPU].allocate(ids(1))
        assert list(world.serving.plugins[GPU].prefer(ids(1), [], 1)) == ids(1)
        await world.publish(AllocationTable())
        assert list(world.serving.plugins) == [SHARED]


async def test_a_gone_gpu_stays_listed_while_held(world: World) -> None:
    """A pod's device does not vanish from the kubelet's list, and its container does not start on nothing."""
    async with world.running():
        await world.publish(TWO, held(GPU, gpu_uuid(1)))
        await world.publish(make_inventory([make_gpu(0)]))
        assert world.serving.newest() == {"0": True, "1": False}
        with pytest.raises(DeviceUnhealthy, match="not on this node"):
            await world.serving.plugins[GPU].pre_start(ids(1))
        await world.publish(AllocationTable())
        assert world.serving.newest() == {"0": True}


async def test_allocations_do_not_make_new_lists(world: World) -> None:
    """What the kubelet knows already is not sent again."""
    async with world.running():
        await world.publish(TWO)
        await world.publish(held(GPU, gpu_uuid(0)))
        assert len(world.serving.lists[GPU]) == 1


async def test_problems_of_the_plan_are_conditions(world: World) -> None:
    """What cannot be offered is told, and no longer when it can."""
    half = Inventory(generation=1, gpus=(make_gpu(0), make_gpu(1, mig=[])))
    world.live.replace(Settings(device_plugin=DevicePluginSettings(mig_strategy="mixed")))
    async with world.running():
        await world.publish(half)
        assert world.details("plugin-devices-withheld").keys() == {"GPU 1"}
        await world.publish(make_inventory([make_gpu(0), make_gpu(1, mig=["1g.10gb"])]))
        assert world.details("plugin-devices-withheld") == {}


async def test_a_missing_channel_takes_all_devices_off_until_it_is_there(clock: FakeClock) -> None:
    """A required channel blocks; its node appears without a word and is found by looking."""
    world = World(clock, Settings(device_plugin=DevicePluginSettings(imex_channel_ids=(0,), imex_required=True)))
    async with world.running():
        await world.publish(TWO)
        assert world.serving.newest() == {"0": False, "1": False}
        assert "channel0" in world.details("plugin-devices-withheld")["device_plugin.imex_channel_ids"]
        world.facts = HandoutFacts(imex_channels=(0,))
        await anyio.sleep(6)
        assert world.serving.newest() == {"0": True, "1": True}
        assert world.details("plugin-devices-withheld") == {}


async def test_a_resource_that_cannot_be_served_is_tried_again(world: World) -> None:
    """The reason is a condition, and the others are not touched."""
    world.serving.failures = 1
    async with world.running():
        await world.publish(TWO)
        assert "no space left" in world.details("plugin-not-registered")[GPU]
        await anyio.sleep(3)
        assert world.serving.newest() == {"0": True, "1": True}
        assert world.details("plugin-not-registered") == {}
        assert world.ready.is_set()


async def test_another_plugin_of_the_resource_is_a_condition(world: World) -> None:
    """It is said for the resource, with what shows it, for as long as it lasts."""
    world.serving.contested = "the kubelet has another list"
    async with world.running():
        await world.publish(TWO)
        assert world.details("plugin-contested") == {GPU: "the kubelet has another list"}
        world.serving.contested = ""
        await world.publish(make_inventory([make_gpu(0)]))
        await anyio.sleep(1)
        assert world.details("plugin-contested") == {}


async def test_switched_off_nothing_is_offered(clock: FakeClock) -> None:
    """Where another plugin is in charge this one keeps still, and says that it is ready."""
    world = World(clock, Settings(device_plugin=DevicePluginSettings(enabled=False)))
    async with world.running():
        await world.publish(TWO, held(GPU, gpu_uuid(0)))
        assert world.serving.begun == []
        assert world.ready.is_set()


async def test_what_is_not_offered_is_accounted_for(world: World) -> None:
    """By state and conditions, as verdicts and settings come and go; a plugin that is switched off says nothing."""

    def account() -> OfferSummary | None:
        state = world.bus.latest(PluginState)
        assert state is not None
        return state.value.account

    async with world.running():
        await world.publish(TWO, report(g0=Verdict.HEALTHY, g1=Verdict.HEALTHY))
        assert account() == OfferSummary(gpus=2, devices_offered=2)
        await world.publish(report(g0=Verdict.UNHEALTHY, g1=Verdict.HEALTHY))
        assert world.details("gpu-not-offered") == {gpu_uuid(0): "GPU 0: xid 79"}
        await world.reload(Settings(gpus=GpusSettings(exclude=("0",))))
        assert world.details("gpu-not-offered") == {}
        assert world.details("gpu-excluded") == {gpu_uuid(0): "GPU 0: `gpus.exclude` names it by '0'"}
        await world.reload(Settings(device_plugin=DevicePluginSettings(enabled=False)))
        assert account() is None
        assert world.details("gpu-excluded") == {}


def doors(*pairs: tuple[AllocationMode, bool], waits_for: tuple[ModeHolder, ...] = ()) -> Offering:
    return Offering(
        doors=tuple(
            GpuAllocationMode(
                gpu=gpu_uuid(index),
                index=index,
                address=make_address(index),
                door=door,
                wanted=door,
                reason="set by a person",
                is_open=is_open,
                waits_for=waits_for,
            )
            for index, (door, is_open) in enumerate(pairs)
        )
    )


async def test_a_gpu_behind_another_door_is_not_offered_and_comes_back(world: World) -> None:
    """The kubelet counts one GPU less, and the account says why."""
    async with world.running():
        await world.publish(TWO, doors((AllocationMode.NONE, False), (AllocationMode.WHOLE, True)))
        assert world.serving.newest() == {"1": True}
        assert world.details("gpu-door") == {gpu_uuid(0): "GPU 0: door none (set by a person)"}
        await world.publish(doors((AllocationMode.WHOLE, True), (AllocationMode.WHOLE, True)))
        assert world.serving.newest() == {"0": True, "1": True}
        assert world.details("gpu-door") == {}


async def test_a_gpu_that_drains_stays_listed_for_those_who_have_it(world: World) -> None:
    """Unhealthy, so that nobody new gets it, and whoever has it may start again on it."""
    holder = ModeHolder(door=AllocationMode.WHOLE, name="allocation 1")
    async with world.running():
        await world.publish(
            TWO, held(GPU, gpu_uuid(0)), doors((AllocationMode.WHOLE, True), (AllocationMode.WHOLE, True))
        )
        await world.publish(doors((AllocationMode.WHOLE, False), (AllocationMode.WHOLE, True), waits_for=(holder,)))
        assert world.serving.newest() == {"0": False, "1": True}
        # That it waits is told by the part that looks after doors, with the remedy for that.
        assert world.details("gpu-door") == {}
        with pytest.raises(DeviceUnknown):
            await world.serving.plugins[GPU].allocate(ids(0))
        await world.serving.plugins[GPU].pre_start(ids(0))
        await world.publish(doors((AllocationMode.NONE, False), (AllocationMode.WHOLE, True)))
        assert world.details("gpu-door") == {gpu_uuid(0): "GPU 0: door none (set by a person)"}


async def test_a_cordoned_gpu_stays_listed_and_is_given_to_nobody(world: World) -> None:
    """The kubelet counts it and gives it to no new pod; the container that has it starts again on it."""
    cordon = Cordon(gpu=gpu_uuid(0), source=CordonSource.ANNOTATION, named="0", reason="fan")
    standing = doors((AllocationMode.WHOLE, True), (AllocationMode.WHOLE, True))
    first, second = standing.doors
    cordoned = Offering(doors=(replace(first, is_open=False, cordons=(cordon,)), second))
    async with world.running():
        await world.publish(TWO, report(g0=Verdict.HEALTHY, g1=Verdict.HEALTHY), standing)
        assert world.serving.newest() == {"0": True, "1": True}
        await world.publish(cordoned)
        assert world.serving.newest() == {"0": False, "1": True}
        with pytest.raises(DeviceUnhealthy, match="cordoned by the annotation"):
            await world.serving.plugins[GPU].allocate(ids(0))
        await world.serving.plugins[GPU].pre_start(ids(0))
        # The part that keeps cordons tells of it.
        assert (world.details("gpu-door"), world.details("gpu-not-offered")) == ({}, {})
        await world.publish(standing)
        assert world.serving.newest() == {"0": True, "1": True}


async def test_a_gpu_is_not_offered_before_its_door_is_known(world: World) -> None:
    """One that appears could be behind any."""
    async with world.running():
        await world.publish(TWO, doors((AllocationMode.WHOLE, True)))
        assert world.serving.newest() == {"0": True}
        assert world.details("gpu-door") == {gpu_uuid(1): "GPU 1: its door is not known yet"}
