"""The devices component between the bus, a host that is what the test says, and the kubelet's questions."""

from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager

import anyio

from nodeagent.components.devices.component import Devices
from nodeagent.components.devices.plugin_task import ClassPlugin, ClassPlugins
from nodeagent.config.live import LiveSettings
from nodeagent.config.schema import Settings
from nodeagent.config.sections.devices import DeviceClass, DevicesSettings
from nodeagent.core.channels.bus import Bus
from nodeagent.core.conditions import Conditions
from nodeagent.edge.host.devices.device_sensors import DeviceSensors
from nodeagent.edge.host.devices.host_scan import HostScan
from nodeagent.edge.host.files.cdi_files import SpecFiles
from nodeagent.model.allocation import Allocation, AllocationTable, PodIdentity
from nodeagent.model.cdi import SpecContent
from nodeagent.model.conditions import CATALOGUE
from nodeagent.model.devices import DeviceReadingTable, DeviceTable, HostDevice, HostDevices, ScanRequest
from nodeagent.model.errors import NodeagentError
from nodeagent.model.events import ConfigurationReloaded
from nodeagent.model.ids import DeviceId, ResourceName
from nodeagent.rules.cdi_names import DEVICE_FRACTION_FILES
from nodeagent.rules.devices.group import render_id
from tests.component.deviceplugin.harness import FakeJournal
from tests.support.devices import make_class, make_host
from tests.support.virtual_time import FakeClock

THING = ResourceName("example.com/thing")
X0, X1 = render_id(THING, "x0"), render_id(THING, "x1")


class HostFailed(NodeagentError):
    """The host of this test does not answer."""


class FakeScan(HostScan):
    """A host that has what the test says."""

    def __init__(self) -> None:
        self.host = make_host("/dev/x0", "/dev/x1")
        self.texts: dict[str, str] = {}
        self.said: dict[tuple[str, ...], str] = {}
        self.ran: list[tuple[float, tuple[str, ...]]] = []
        self.looks = 0
        self.fails = self.is_deaf = False
        self._changed = anyio.Event()

    def become(self, host: HostDevices) -> None:
        """Have other nodes from now on, which is noticed."""
        self.host = host
        self._changed.set()
        self._changed = anyio.Event()

    async def look(self, request: ScanRequest) -> HostDevices:
        self.looks += 1
        if self.fails:
            raise HostFailed("sysfs hangs")
        return self.host if request != ScanRequest() else HostDevices()

    async def wait_change(self) -> None:
        if self.is_deaf:
            raise HostFailed("sysfs hangs")
        await self._changed.wait()

    async def read_files(self, paths: Sequence[str]) -> Mapping[str, str]:
        return {path: self.texts.get(path, "") for path in paths}

    async def run_command(self, command: Sequence[str], timeout_seconds: float) -> str:
        self.ran.append((anyio.current_time(), tuple(command)))
        return self.said.get(tuple(command), "")


class FakeSensors(DeviceSensors):
    """Sensors that show what the test says, by directory."""

    def __init__(self) -> None:
        self.texts: dict[str, dict[str, str]] = {}
        self.hung: set[str] = set()

    async def read(self, place: str) -> Mapping[str, str]:
        if place in self.hung:
            raise HostFailed("the driver hangs")
        return self.texts.get(place, {})


class FakeSpecs(SpecFiles):
    """A directory of specifications."""

    def __init__(self) -> None:
        self.files: dict[str, bytes] = {}
        self.writes = 0
        self.fails = False

    async def read_specs(self) -> tuple[SpecContent, ...]:
        if self.fails:
            raise HostFailed("no space left")
        return tuple(SpecContent(path=f"/cdi/{name}", content=content) for name, content in self.files.items())

    async def write_spec(self, name: str, content: bytes, *, durable: bool = True) -> None:
        if self.fails:
            raise HostFailed("no space left")
        assert durable is not name.startswith(DEVICE_FRACTION_FILES)
        self.writes += 1
        self.files[name] = content

    async def list_passing(self) -> tuple[str, ...]:
        return tuple(name for name in self.files if name.startswith(DEVICE_FRACTION_FILES))

    async def remove_spec(self, name: str) -> None:
        if self.fails:
            raise HostFailed("read-only")
        del self.files[name]


class World:
    def __init__(self, clock: FakeClock) -> None:
        self.bus = Bus(clock)
        self.clock = clock
        self.conditions = Conditions(self.bus, clock, CATALOGUE)
        self.live = LiveSettings(plan(make_class(nodes=["/dev/x*"])))
        self.journal, self.scan, self.sensors, self.specs = FakeJournal(), FakeScan(), FakeSensors(), FakeSpecs()
        self.plugins = ClassPlugins(self.live, self.journal)

    @asynccontextmanager
    async def running(self, *classes: DeviceClass) -> AsyncIterator[None]:
        if classes:
            self.live.replace(plan(*classes))
            self.plugins.follow(classes)
        component = Devices(
            self.bus,
            self.conditions,
            self.clock,
            self.live,
            self.plugins,
            scan=self.scan,
            sensors=self.sensors,
            specs=self.specs,
        )

        async def run() -> None:
            async with anyio.create_task_group() as inner:
                await inner.start(lambda task_status: component.run(task_status=task_status))

        async with anyio.create_task_group() as tasks:
            tasks.start_soon(run)
            await self.settle()
            yield
            tasks.cancel_scope.cancel()

    async def reload(self, settings: Settings) -> None:
        self.live.replace(settings)
        self.bus.publish_fact(ConfigurationReloaded(changed=("devices.classes",)), source="test")
        await self.settle()

    async def become(self, *paths: str) -> None:
        self.scan.become(make_host(*paths))
        await self.settle()

    async def scan_again(self) -> None:
        self.scan.become(self.scan.host)
        await self.settle()

    async def hold(self, *allocations: Allocation) -> None:
        self.bus.publish_state(AllocationTable(allocations=allocations), source="test")
        await self.settle()

    async def settle(self) -> None:
        """Let everything happen that is due, and nothing that waits for a second."""
        await anyio.sleep(0.1)

    @property
    def plugin(self) -> ClassPlugin:
        return self.plugins.plugins[THING]

    async def listed(self) -> dict[str, bool]:
        return {device.id: device.healthy for device in await self.plugin.wait_devices(None)}

    def table(self) -> DeviceTable:
        state = self.bus.latest(DeviceTable)
        assert state is not None
        return state.value

    def readings(self) -> dict[str, float]:
        """The temperature of each device that has one."""
        state = self.bus.read(DeviceReadingTable) or DeviceReadingTable()
        return {name: one.temperatures[0].celsius for name, one in state.readings.items()}

    def find(self, device: str) -> HostDevice:
        found = self.table().find(device)
        assert found is not None
        return found

    def details(self, code: str) -> dict[str, str]:
        return {each.key: each.detail for each in self.conditions.all_set() if each.code == code}

    def facts(self) -> list[str]:
        """The kinds of what happened, oldest first."""
        kinds = ("DeviceFound", "DeviceLost", "DeviceJudged")
        names = [type(one.value).__name__ for one in self.bus.history()]
        return [name for name in names if name in kinds]


def plan(*classes: DeviceClass) -> Settings:
    return Settings(devices=DevicesSettings(classes=classes))


def held(*devices: str, number: int = 1, resource: str = THING, name: str = "b") -> Allocation:
    return Allocation(
        number=number,
        resource=ResourceName(resource),
        devices=tuple(map(DeviceId, devices)),
        since_seconds=0.0,
        pod=PodIdentity(namespace="a", name=name),
        container="c",
    )
