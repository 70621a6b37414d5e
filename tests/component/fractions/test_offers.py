"""What the kubelet counts, and whose word changes it, on virtual time."""

import anyio
import pytest
from msgspec.structs import replace

from nodeagent.model.driver import DriverPhase
from nodeagent.model.errors import DeviceUnhealthy, FractionsUnavailable
from nodeagent.model.events import ConfigurationReloaded
from nodeagent.model.fractions import ContainerRequest, FractionOffers, PodRequest
from nodeagent.model.health import Verdict
from nodeagent.model.ids import DeviceId, ResourceName
from nodeagent.model.offering import AllocationMode
from nodeagent.model.ports import ContainerDevices, KubeletCheckpoint, PodListing
from nodeagent.model.runtime import RuntimeKind, RuntimeState
from nodeagent.model.shim_names import read_request
from nodeagent.rules.fractions.bound import BoundFractions, read_bound
from nodeagent.rules.fractions.device_ids import parse_fraction_id
from nodeagent.rules.fractions.published import read_published
from nodeagent.rules.fractions.runtime import explain_no_cdi
from tests.component.fractions.harness import FakePods, World, driver
from tests.support.fractions import make_health, make_offering, make_pod, make_settings, part
from tests.support.gpus import gpu_uuid, make_inventory
from tests.support.journals import CORE, MEMORY
from tests.support.virtual_time import FakeClock

pytestmark = pytest.mark.virtual_time

SHARE = ResourceName("nvidia.com/gpu")


async def test_nothing_is_offered_before_gpus_doors_and_journal_are_known(world: World) -> None:
    """Ids of a GPU that somebody has whole would be one promise too many."""
    began: list[str] = []

    async def give() -> None:
        async with world.giving():
            began.append("ready")
            await anyio.sleep_forever()

    async with anyio.create_task_group() as tasks:
        tasks.start_soon(give)
        for state in (world.inventory, make_offering(world.inventory)):
            await anyio.sleep(1)
            assert (began, dict(world.relay.list_plugins())) == ([], {})
            world.tell(state)
        async with world.keeping():
            await anyio.sleep(1)
            assert began == ["ready"]
            assert await world.count_healthy() == 0
            await world.change(make_health(world.inventory))
            assert await world.count_healthy() == 200
        tasks.cancel_scope.cancel()


async def test_both_resources_are_offered_and_who_is_asked_is_said(world: World) -> None:
    """Hundredths and blocks; both kinds of call are wanted."""
    async with world.running():
        assert await world.count_healthy(CORE) == 200
        assert await world.count_healthy(MEMORY) == 256
        offers = world.offers
        assert offers == FractionOffers(
            resources=(CORE, MEMORY), unfit={gpu_uuid(0): "", gpu_uuid(1): ""}, published=offers.published
        )
        assert [gpu.index for gpu in read_published(offers.published).gpus]
        for name in (CORE, MEMORY):
            plugin = world.plugin(name)
            assert plugin.resource == name
            assert (plugin.options.preferred_allocation, plugin.options.pre_start) == (True, True)


async def test_ids_of_one_gpu_are_preferred(world: World) -> None:
    """A container whose ids stay together can be near its processors."""
    async with world.running():
        plugin = world.plugin()
        devices = [device.id for device in await plugin.wait_devices(None)]
        tokens = [parse_fraction_id(device) for device in plugin.prefer(devices[90:], [], 60)]
        assert len({token.group for token in tokens if token is not None}) == 1


async def test_ids_of_a_bad_gpu_go_and_come_back(world: World) -> None:
    """In both directions, and changes of one moment are told at once."""
    async with world.running():
        plugin = world.plugin()
        known = await plugin.wait_devices(None)
        await world.change(make_health(world.inventory, {1: Verdict.UNHEALTHY}, "xid 79"))
        ill = await plugin.wait_devices(known)
        assert [device.healthy for device in ill].count(False) == 100
        assert world.offers.unfit[gpu_uuid(1)] == "xid 79"
        with pytest.raises(DeviceUnhealthy):
            await plugin.allocate([next(device.id for device in ill if not device.healthy)])
        await world.change(make_health(world.inventory))
        assert await plugin.wait_devices(ill) == known


@pytest.mark.parametrize(
    ("phase", "healthy"),
    [(DriverPhase.READY, 200), (DriverPhase.NOT_LOADED, 0), (DriverPhase.STUCK, 200)],
)
async def test_without_a_driver_nothing_can_be_had(world: World, phase: DriverPhase, healthy: int) -> None:
    """One that is stuck may be so with one GPU: which, health says."""
    async with world.running():
        await world.change(driver(phase, "gone"))
        assert await world.count_healthy() == healthy


async def test_a_runtime_without_cdi_is_offered_nothing_and_says_so(world: World) -> None:
    """The condition and the refusal name runtime, lack and remedy; with CDI on everything goes on by itself."""
    runtime = RuntimeState(
        kind=RuntimeKind.CONTAINERD, version="1.7.20", config_file="/etc/containerd/config.toml", cdi_enabled=False
    )
    lack = explain_no_cdi(runtime)
    async with world.running():
        held = await world.admit("train", 30, 32)
        await world.change(runtime)
        assert await world.count_healthy() == 0
        assert set(world.offers.unfit.values()) == {lack}
        with pytest.raises(
            FractionsUnavailable, match=r"containerd 1\.7\.20 takes no CDI devices: switch them on in /etc"
        ):
            await world.start(held)
        assert world.details("parts-without-cdi") == {"": lack}
        await world.change(replace(runtime, cdi_enabled=True))
        assert await world.count_healthy() == 200
        assert (await world.start(held)).parts
        assert world.details("parts-without-cdi") == {}


async def test_a_runtime_without_cdi_is_told_by_the_shim_where_that_creates_every_container(world: World) -> None:
    """By the same names at the same moment: a promise means nothing before its container starts."""
    runtime = RuntimeState(kind=RuntimeKind.CONTAINERD, version="1.6.20", cdi_enabled=False, through_shim=True)
    async with world.running():
        await world.change(runtime)
        assert await world.count_healthy() == 200
        plugin = world.plugin()
        devices = [device.id for device in await plugin.wait_devices(None)][:100]
        answer = await plugin.allocate(devices)
        (promise,) = world.table.reservations.values()
        assert answer.cdi_devices == ()
        assert [read_request(mount.container_path) for mount in answer.mounts] == [promise.cdi_name]
        assert world.details("parts-without-cdi") == {}


async def test_a_gpu_that_goes_through_another_door_is_counted_no_more(world: World) -> None:
    """While somebody has a part of it its ids stay, unhealthy; those that somebody holds stay as long as they do."""
    async with world.running():
        held = await world.admit("train", 30, 32)
        await world.start(held)
        await world.change(make_offering(world.inventory, {0: (AllocationMode.FRACTIONS, False)}))
        assert await world.count_healthy() == 100
        await world.change(
            make_offering(world.inventory, {0: (AllocationMode.WHOLE, True), 1: (AllocationMode.WHOLE, True)})
        )
        assert {device.id for device in await world.plugin().wait_devices(None)} == set(held.cores)
        assert await world.count_healthy() == 0
        world.end(held)
        await anyio.sleep(60)
        assert dict(world.relay.list_plugins()) == {}
        assert world.offers == FractionOffers()


async def test_a_gpu_that_comes_later_is_counted(world: World) -> None:
    """And the answer to an id of it is its own."""
    both = world.inventory
    world.inventory = make_inventory(both.gpus[:1])
    async with world.running():
        assert await world.count_healthy() == 100
        world.tell(both, make_offering(both), make_health(both))
        await anyio.sleep(0.1)
        assert await world.count_healthy() == 200


def hold_shares(world: World, ids: list[DeviceId]) -> PodRequest:
    """The kubelet says that a pod has these shares; what the API server says of it."""
    pod = make_pod("train")
    entry = ContainerDevices(pod=replace(pod, uid=""), container="main", resource=SHARE, devices=tuple(ids))
    world.kubelet.listing = PodListing(pods=(replace(pod, uid=""),), containers=(entry,))
    noted = replace(entry, pod=replace(pod, name="", namespace=""))
    world.kubelet.checkpoint = KubeletCheckpoint(containers=(noted,))
    limits = {"nvidia.com/gpumem": "4096", "nvidia.com/gpucores": "25"}
    return PodRequest(pod=pod, containers=(ContainerRequest(name="main", limits=limits),))


async def test_shares_are_as_large_as_the_pod_says(clock: FakeClock) -> None:
    """One resource; the second container of a pod starts when the API server has told of it."""
    world = World(clock, profile="hami", shares_per_gpu=4)
    world.pods = FakePods()
    async with world.running():
        assert dict(world.relay.list_plugins()).keys() == {SHARE}
        assert await world.count_healthy(SHARE) == 8
        plugin = world.plugin(SHARE)
        ids = [device.id for device in await plugin.wait_devices(None)][:1]
        await plugin.allocate(ids)
        world.pods.put(hold_shares(world, ids))
        await plugin.pre_start(ids)
        (binding,) = world.table.bindings.values()
        assert binding.parts == (part(0, 25, 4),)


async def test_a_setting_counts_when_it_is_read_anew(world: World) -> None:
    """Whether a scheduler's choice is obeyed can be changed at any time."""
    world.pods = FakePods()
    async with world.running():
        world.live.replace(make_settings(use_scheduler_choice=False))
        world.bus.publish_fact(ConfigurationReloaded(changed=("fractions",)), source="test")
        held = await world.admit("train", 30, 32)
        request = {"tencent.com/predicate-gpu-idx-0": "1"}
        world.pods.put(PodRequest(pod=held.pod, annotations=request, containers=(ContainerRequest(name="main"),)))
        assert (await world.start(held)).parts == (part(0, 30, 8),)


async def test_schedulers_are_told_what_holds_containers_to_their_parts(world: World) -> None:
    """By default and from a reload on, and how many MPS can hold where its daemons are looked after."""
    async with world.running():
        published = read_published(world.offers.published)
        assert (published.enforcement, published.has_mps) == ("advise", False)
        world.live.replace(make_settings(enforcement="mps"))
        world.bus.publish_fact(ConfigurationReloaded(changed=("fractions",)), source="test")
        await world.change(make_health(world.inventory))
        published = read_published(world.offers.published)
        assert (published.enforcement, published.has_mps) == ("mps", True)


async def test_what_containers_have_is_published(world: World) -> None:
    """From a start on, with other limits as soon as they are set, and until it is given back; a switch turns it off."""

    def read() -> BoundFractions:
        offers = world.offers
        gpus = {gpu.index: gpu.uuid for gpu in world.inventory.gpus}
        return read_bound(offers.bound, gpus) if offers.bound else {}

    async with world.running():
        assert read() == {}
        held = await world.admit("train", 50, 32)
        assert read() == {}
        binding = await world.start(held)
        assert read() == {held.pod.uid: {"main": (part(0, 50, 8),)}}
        await world.set_limits(pod="train", cores=60)
        await anyio.sleep(0.1)
        assert read() == {held.pod.uid: {"main": (part(0, 60, 8),)}}
        world.live.replace(make_settings(publish=False))
        await world.change(make_health(world.inventory, {1: Verdict.UNHEALTHY}))
        assert world.offers.bound == ""
        world.live.replace(make_settings())
        await world.journal.release({binding.number: "it has ended"})
        await anyio.sleep(0.1)
        assert read() == {}
