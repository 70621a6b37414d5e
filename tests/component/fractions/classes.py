"""The component with a divisible class of devices, on a node with or without GPUs of the driver."""

from collections.abc import Awaitable, Callable, Mapping
from typing import Any

from msgspec.structs import replace

from nodeagent.components.fractions import poll_task, reconcile_task
from nodeagent.components.fractions.component import FractionHandles, Fractions
from nodeagent.config.sections.devices import DevicesSettings, name_class_resources
from nodeagent.model.allocation import Allocation, AllocationTable, PodIdentity
from nodeagent.model.devices import DeviceClassState, DeviceTable, HostDevice, Standing
from nodeagent.model.errors import NodeagentError
from nodeagent.model.fractions import FractionDecisions
from nodeagent.model.ids import DeviceId, GpuUuid, ResourceName
from nodeagent.model.journal import Binding
from nodeagent.rules.devices.group import render_id
from tests.component.fractions.harness import FakeSpecs, World
from tests.support.devices import make_class
from tests.support.placement import GIB
from tests.support.virtual_time import FakeClock

AMD = ResourceName("amd.com/gpu")
AMD_CORE, AMD_MEMORY = name_class_resources(AMD)
D0, D1 = GpuUuid(render_id(AMD, "d0")), GpuUuid(render_id(AMD, "d1"))
BLOCKS_OF_A_GIB = 4


class FakeDeviceSpecs(FakeSpecs):
    """Those of fractions of classes' devices, which can be listed."""

    async def list_fractions(self) -> tuple[str, ...]:
        if self.broken:
            raise NodeagentError(self.broken)
        return tuple(self.files)


def make_device(name: str, memory_bytes: int | None = 64 * GIB, reason: str = "") -> HostDevice:
    standing = Standing.UNHEALTHY if reason else Standing.HEALTHY
    path = f"/dev/{name}"
    return HostDevice(
        id=DeviceId(name), name=path, nodes=(path,), memory_bytes=memory_bytes, standing=standing, reason=reason
    )


def make_devices(*devices: HostDevice, resource: ResourceName = AMD) -> DeviceTable:
    return DeviceTable(classes=(DeviceClassState(resource=resource, divisible=True, devices=devices),))


def hold_whole(device: str) -> AllocationTable:
    pod = PodIdentity(namespace="ml", name="before")
    held = Allocation(number=1, resource=AMD, devices=(DeviceId(device),), since_seconds=0.0, pod=pod, container="main")
    return AllocationTable(allocations=(held,))


class ClassWorld(World):
    """Two devices of 64 GiB; the kubelet's pods ask for parts of them unless `ask_for` says otherwise."""

    def __init__(self, clock: FakeClock, *, has_gpus: bool = False, **fractions: Any) -> None:
        super().__init__(clock, **fractions)
        divided = make_class(AMD, nodes=["/dev/d*"], divisible=True, memory_mib=65536)
        settings = self.live.now
        self.live.replace(
            replace(
                settings,
                devices=DevicesSettings(classes=(divided,)),
                fractions=replace(settings.fractions, enabled=has_gpus),
            )
        )
        self.devices = make_devices(make_device(D0), make_device(D1))
        self.gpu_specs, self.device_specs = self.specs, FakeDeviceSpecs()
        self.wait_for_gpus: Callable[[], Awaitable[None]] | None = None
        self.ask_for(AMD)

    def ask_for(self, resource: ResourceName | None) -> None:
        """Pods ask for parts of a class's devices from now on, or of the driver's GPUs."""
        if resource is None:
            self.core, self.memory = ResourceName("tencent.com/vcuda-core"), ResourceName("tencent.com/vcuda-memory")
            self.specs = self.gpu_specs
        else:
            self.core, self.memory = name_class_resources(resource)
            self.specs = self.device_specs

    def tell(self, *states: object) -> None:
        super().tell(*states)
        if not states:
            super().tell(self.devices)

    def build(self) -> Fractions:
        open_pods = None if self.pods is None else self._open_pods
        sources = poll_task.Sources(self.kubelet, self._list_containers, self.places, open_pods)  # type: ignore[arg-type]
        files = reconcile_task.Files(lambda: self.gpu_specs, self.folders, self.library, lambda: self.device_specs)
        handles = FractionHandles(self.relay, self.orders, self.wait_for_gpus)
        return Fractions(self.bus, self.conditions, self.clock, self.live, handles, self.journal, files, sources)

    async def run(self, name: str, cores: int, gibibytes: int = 0, **how: Any) -> Binding:
        """A pod is admitted and starts."""
        return await self.start(await self.admit(name, cores, gibibytes * BLOCKS_OF_A_GIB, **how))

    @property
    def decisions(self) -> FractionDecisions:
        return self.bus.read(FractionDecisions) or FractionDecisions()

    def read_told(self, binding: Binding) -> Mapping[str, str]:
        """The variables that the container of a binding has."""
        return self.device_specs.environments[binding.cdi_name.partition("=")[2]]
