"""The device plugin between the bus and a kubelet that does what the test says, on virtual time."""

from collections.abc import AsyncIterator, Callable, Collection, Sequence
from contextlib import asynccontextmanager
from typing import Any

import anyio
import pytest
from msgspec.structs import replace

from nodeagent.components.deviceplugin.component import DevicePlugins
from nodeagent.config.live import LiveSettings
from nodeagent.config.schema import Settings
from nodeagent.config.sections.plugin import DevicePluginSettings
from nodeagent.config.sections.sharing import SharedResource, SharingSettings, TimeSlicing
from nodeagent.kernel.bus import Bus
from nodeagent.kernel.conditions import Conditions
from nodeagent.model.allocation import Allocation, AllocationTable
from nodeagent.model.conditions import CATALOGUE
from nodeagent.model.driver import DriverPhase, DriverState
from nodeagent.model.errors import DeviceUnhealthy, DeviceUnknown, JournalUnavailable, NodeagentError
from nodeagent.model.events import ConfigurationReloaded, DevicesAdvertised
from nodeagent.model.gpu import Inventory
from nodeagent.model.health import DeviceHealth, HealthReport, Verdict
from nodeagent.model.ids import DeviceId, ResourceName
from nodeagent.model.plugin import AdvertisedDevice, AdvertisedResource, HandoutFacts, PluginState
from nodeagent.model.ports import DevicePlugin
from nodeagent.model.runtime import CdiSpecFile, CdiState
from tests.support.gpus import gpu_uuid, make_gpu, make_inventory, make_node
from tests.support.virtual_time import FakeClock
from tests.support.waiting import settled

pytestmark = [pytest.mark.anyio, pytest.mark.virtual_time]

GPU = ResourceName("nvidia.com/gpu")
SHARED = ResourceName("nvidia.com/gpu.shared")
CDI = "k8s.device-plugin.nvidia.com"


class ServingFailed(NodeagentError):
    """The socket of this test cannot be served."""


class FakeJournal:
    """Remembers what it was asked; refuses while `refusal` is set."""

    def __init__(self) -> None:
        self.recorded: list[tuple[DeviceId, ...]] = []
        self.identified: list[tuple[DeviceId, ...]] = []
        self.doubted: frozenset[DeviceId] = frozenset()
        self.refusal: Exception | None = None

    async def record(self, resource: ResourceName, devices: Sequence[DeviceId]) -> Allocation:
        if self.refusal is not None:
            raise self.refusal
        self.recorded.append(tuple(devices))
        return Allocation(number=len(self.recorded), resource=resource, devices=tuple(devices), since_seconds=0.0)

    async def identify(self, resource: ResourceName, devices: Sequence[DeviceId]) -> None:
        self.identified.append(tuple(devices))

    def doubtful(self) -> Collection[DeviceId]:
        return self.doubted


class FakeServing:
    """Stands for socket, registration and stream of each resource; keeps each list that a kubelet would get."""

    def __init__(self) -> None:
        self.plugins: dict[ResourceName, DevicePlugin] = {}
        self.lists: dict[ResourceName, list[tuple[float, tuple[AdvertisedDevice, ...]]]] = {}
        self.begun: list[ResourceName] = []
        self.failures = 0
        self.ends_after_seconds = 0.0
        self.may_register = True
        self.contested = ""

    async def __call__(self, plugin: DevicePlugin, endpoint: str, report: Callable[[AdvertisedResource], None]) -> None:
        name = plugin.resource
        self.begun.append(name)
        if self.failures:
            self.failures -= 1
            raise ServingFailed(f"cannot listen on {endpoint}: no space left")
        self.plugins[name] = plugin
        known: tuple[AdvertisedDevice, ...] | None = None
        report(AdvertisedResource(name=name, socket=endpoint, registered=False))
        try:
            while True:
                known = await plugin.wait_devices(known)
                self.lists.setdefault(name, []).append((anyio.current_time(), known))
                standing = AdvertisedResource(name=name, socket=endpoint, registered=self.may_register, devices=known)
                report(replace(standing, contested=self.contested))
        finally:
            del self.plugins[name]
            with anyio.CancelScope(shield=True):
                await anyio.sleep(self.ends_after_seconds)

    def newest(self, name: ResourceName = GPU) -> dict[str, bool]:
        """The last list of a resource: share or index to health."""
        return {device.id.removeprefix("GPU-0000000").replace("-0000-0000-0000-000000000000", ""): device.healthy
                for device in self.lists[name][-1][1]}  # fmt: skip


class World:
    """Everything round the component."""

    def __init__(self, clock: FakeClock, settings: Settings | None = None) -> None:
        self.bus = Bus(clock)
        self.conditions = Conditions(self.bus, clock, CATALOGUE)
        self.live = LiveSettings(settings or Settings())
        self.journal, self.serving = FakeJournal(), FakeServing()
        self.facts = HandoutFacts()
        self.facts_fail = False
        self.ready = anyio.Event()

    @asynccontextmanager
    async def running(self) -> AsyncIterator[None]:
        component = DevicePlugins(
            self.bus, self.conditions, self.live, self.journal, serve=self.serving, read_facts=self.read_facts
        )

        async def run() -> None:
            async with anyio.create_task_group() as inner:
                await inner.start(lambda task_status: component.run(task_status=task_status))
                self.ready.set()

        async with anyio.create_task_group() as tasks:
            tasks.start_soon(run)
            await self.settle()
            yield
            tasks.cancel_scope.cancel()

    async def read_facts(self, _: Settings) -> HandoutFacts:
        if self.facts_fail:
            raise ServingFailed("cannot look at the node")
        return self.facts

    async def publish(self, *states: object) -> None:
        for state in states:
            self.bus.publish_state(state, source="test")
        await self.settle()

    async def reload(self, settings: Settings) -> None:
        self.live.replace(settings)
        self.bus.publish_fact(ConfigurationReloaded(changed=("sharing",)), source="test")
        await self.settle()

    async def settle(self) -> None:
        """Let everything happen that is due within the time in which changes are gathered."""
        await anyio.sleep(0.1)

    def details(self, code: str) -> dict[str, str]:
        return {each.key: each.detail for each in self.conditions.all_set() if each.code == code}


@pytest.fixture
def world(clock: FakeClock) -> World:
    return World(clock)


def ids(*indexes: int) -> list[DeviceId]:
    return [DeviceId(gpu_uuid(index)) for index in indexes]


def report(**verdicts: Verdict) -> HealthReport:
    return HealthReport(
        generation=1,
        devices=tuple(
            DeviceHealth(
                device=gpu_uuid(int(name[1:])),
                gpu=gpu_uuid(int(name[1:])),
                verdict=verdict,
                since_seconds=0.0,
                reason="xid 79" if verdict is Verdict.UNHEALTHY else "",
            )
            for name, verdict in verdicts.items()
        ),
    )


def held(resource: ResourceName, *devices: str) -> AllocationTable:
    names = tuple(map(DeviceId, devices))
    return AllocationTable(allocations=(Allocation(number=1, resource=resource, devices=names, since_seconds=0.0),))


def slicing(replicas: int, *, rename: bool = False, **plugin: Any) -> Settings:
    shared = SharedResource(name="gpu", replicas=replicas)
    return Settings(
        device_plugin=DevicePluginSettings(**plugin),
        sharing=SharingSettings(timeSlicing=TimeSlicing(resources=(shared,), renameByDefault=rename)),
    )


TWO = make_inventory([make_gpu(0), make_gpu(1)])


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


async def test_an_answer_leaves_after_the_journal_has_it(world: World) -> None:
    """What is answered was recorded, and what cannot be recorded is not answered."""
    async with world.running():
        await world.publish(TWO)
        plugin = world.serving.plugins[GPU]
        answer = await settled(plugin.allocate(ids(1)))
        assert answer.cdi_devices == (f"{CDI}/gpu={gpu_uuid(1)}",)
        assert world.journal.recorded == [tuple(ids(1))]
        world.journal.refusal = JournalUnavailable("/j", "disk full")
        with pytest.raises(JournalUnavailable):
            await settled(plugin.allocate(ids(0)))


@pytest.mark.parametrize(
    ("device", "error"),
    [(DeviceId("GPU-foreign"), DeviceUnknown), (DeviceId(gpu_uuid(0)), DeviceUnhealthy)],
)
async def test_unfit_devices_are_refused_and_not_recorded(
    world: World, device: DeviceId, error: type[Exception]
) -> None:
    """An unknown or unhealthy device changes nothing, not even together with a good one."""
    async with world.running():
        await world.publish(TWO, report(g0=Verdict.UNHEALTHY, g1=Verdict.HEALTHY))
        with pytest.raises(error):
            await settled(world.serving.plugins[GPU].allocate([*ids(1), device]))
        assert world.journal.recorded == []


async def test_preference_steers_away_from_what_may_be_held(world: World) -> None:
    """The kubelet may have forgotten: the other devices go first."""
    async with world.running():
        await world.publish(make_node(8))
        plugin = world.serving.plugins[GPU]
        assert list(plugin.prefer(ids(*range(8)), [], 2)) == ids(0, 1)
        world.journal.doubted = frozenset(ids(0, 1, 2, 3, 4))
        assert list(plugin.prefer(ids(*range(8)), [], 2)) == ids(5, 6)


async def test_the_start_of_a_container_tells_who_it_is(world: World) -> None:
    """Each start is a question to the kubelet; on a broken device the container does not start."""
    async with world.running():
        await world.publish(TWO, report(g0=Verdict.UNHEALTHY, g1=Verdict.UNKNOWN))
        plugin = world.serving.plugins[GPU]
        assert plugin.options.pre_start
        await plugin.pre_start(ids(1))
        with pytest.raises(DeviceUnhealthy, match="xid 79"):
            await plugin.pre_start(ids(0))
        assert world.journal.identified == [tuple(ids(1))]


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
                await settled(world.serving.plugins[GPU].allocate(ids(0)))
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
            await settled(world.serving.plugins[GPU].allocate(ids(1)))
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


async def test_a_look_that_fails_changes_nothing(world: World) -> None:
    """What was known of the node stays known."""
    world.facts = HandoutFacts(imex_channels=(3,))
    async with world.running():
        await world.publish(TWO)
        world.facts_fail = True
        await anyio.sleep(6)
        answer = await settled(world.serving.plugins[GPU].allocate(ids(0)))
        assert f"{CDI}/imex-channel=3" in answer.cdi_devices


async def test_extras_are_named_when_their_specification_is_there(clock: FakeClock) -> None:
    """A CDI name without a specification would keep the container from starting."""
    world = World(clock, Settings(device_plugin=DevicePluginSettings(gdrcopy=True, gds=True)))
    async with world.running():
        gpus = CdiSpecFile(path="/b", kind=f"{CDI}/gpu", version="0.5.0", devices=(gpu_uuid(0),))
        storage = CdiSpecFile(path="/c", kind=f"{CDI}/gds", version="0.5.0")
        await world.publish(TWO, CdiState(generation=1, files=(gpus, storage)))
        answer = await settled(world.serving.plugins[GPU].allocate(ids(0)))
        assert answer.cdi_devices == (f"{CDI}/gpu={gpu_uuid(0)}", f"{CDI}/gds=all")


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
