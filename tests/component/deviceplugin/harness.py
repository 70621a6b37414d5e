"""The device plugin between the bus and a kubelet that does what the test says."""

from collections.abc import AsyncIterator, Awaitable, Callable, Collection, Sequence
from contextlib import asynccontextmanager
from typing import Any

import anyio
from msgspec.structs import replace

from nodeagent.components.deviceplugin.component import DevicePlugins, OtherResources
from nodeagent.config.live import LiveSettings
from nodeagent.config.schema import Settings
from nodeagent.config.sections.plugin import DevicePluginSettings
from nodeagent.config.sections.sharing import SharedResource, SharingSettings, TimeSlicing
from nodeagent.core.channels.bus import Bus
from nodeagent.core.conditions import Conditions
from nodeagent.model.allocation import Allocation, AllocationTable
from nodeagent.model.conditions import CATALOGUE
from nodeagent.model.errors import NodeagentError
from nodeagent.model.events import ConfigurationReloaded
from nodeagent.model.health import DeviceHealth, HealthReport, Verdict
from nodeagent.model.ids import DeviceId, ResourceName
from nodeagent.model.plugin import AdvertisedDevice, AdvertisedResource, HandoutFacts
from nodeagent.model.ports import DevicePlugin
from tests.support.gpus import gpu_uuid, make_gpu, make_inventory
from tests.support.virtual_time import FakeClock

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


class FakeOthers:
    """Resources that another part answers for."""

    def __init__(self) -> None:
        self.plugins: dict[ResourceName, DevicePlugin] = {}

    def list_plugins(self) -> dict[ResourceName, DevicePlugin]:
        return self.plugins


class World:
    def __init__(self, clock: FakeClock, settings: Settings | None = None) -> None:
        self.bus = Bus(clock)
        self.conditions = Conditions(self.bus, clock, CATALOGUE)
        self.live = LiveSettings(settings or Settings())
        self.journal, self.serving, self.others = FakeJournal(), FakeServing(), FakeOthers()
        self.facts = HandoutFacts()
        self.facts_fail = False
        self.ready = anyio.Event()
        self.wait_for_gpus: Callable[[], Awaitable[None]] | None = None

    @asynccontextmanager
    async def running(self) -> AsyncIterator[None]:
        component = DevicePlugins(
            self.bus, self.conditions, self.live, self.journal,
            serve=self.serving, read_facts=self.read_facts,
            others=OtherResources(self.others, wait_for_gpus=self.wait_for_gpus),
        )  # fmt: skip

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
