"""The component that gives GPUs in parts, with the journal's keeper beside it, and fakes round both."""

from collections.abc import AsyncGenerator, AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager
from typing import Any

import anyio

from nodeagent.components.allocations.component import Allocations
from nodeagent.components.allocations.journal_format import parse_journal
from nodeagent.components.allocations.journal_task import Journal
from nodeagent.components.allocations.ledger import Node, replay
from nodeagent.components.fractions import poll_task, reconcile_task
from nodeagent.components.fractions.component import NAME_PAUSES_SECONDS, FractionHandles, Fractions
from nodeagent.components.fractions.plugin_task import FractionPlugins
from nodeagent.config.live import LiveSettings
from nodeagent.core.channels.bus import Bus
from nodeagent.core.conditions import Conditions
from nodeagent.core.life.orders import OrderHandlers
from nodeagent.model.allocation import PodIdentity
from nodeagent.model.conditions import CATALOGUE
from nodeagent.model.driver import DriverPhase, DriverState
from nodeagent.model.errors import NodeagentError
from nodeagent.model.fractions import (
    FractionLimit,
    FractionOffers,
    LibraryFiles,
    LimitsFolder,
    MeasuredUtilization,
    PodContainer,
    PodRequest,
    UsageCheck,
)
from nodeagent.model.gpu import Inventory
from nodeagent.model.health import HealthReport
from nodeagent.model.ids import DeviceId, GpuUuid, ResourceName
from nodeagent.model.journal import Binding, FractionTable
from nodeagent.model.offering import Offering
from nodeagent.model.orders import SET_PART, LimitsCommand
from nodeagent.model.plugin import AdvertisedResource, ContainerMount, PluginState
from nodeagent.model.ports import ContainerDevices, ContainerReceipts, DevicePlugin, KubeletCheckpoint, PodListing
from nodeagent.model.ports.hardware import ProcessPlace
from nodeagent.model.runtime import RuntimeState
from tests.fakes.journal_store import FakeKubelet, FakeStore
from tests.support.fractions import PROXY, make_health, make_offering, make_parted, make_settings
from tests.support.journals import CORE, MEMORY
from tests.support.virtual_time import FakeClock

PART = "k8s.device-plugin.nvidia.com/part"


class FakeSpecs:
    """What container runtimes would find: for each name its GPUs and what is mounted."""

    def __init__(self) -> None:
        self.files: dict[str, dict[str, tuple[tuple[GpuUuid, ...], tuple[ContainerMount, ...]]]] = {}
        self.environments: dict[str, Mapping[str, str]] = {}
        self.broken = self.keeps = ""
        self.hangs = False

    async def write_fraction(
        self,
        names: tuple[str, ...],
        gpus: Sequence[GpuUuid],
        mounts: Sequence[ContainerMount],
        environment: Mapping[str, str],
    ) -> None:
        if self.hangs:
            await anyio.sleep_forever()
        if self.broken:
            raise NodeagentError(self.broken)
        self.environments[names[0]] = environment
        self.files[names[0]] = dict.fromkeys(names, (tuple(gpus), tuple(mounts)))

    async def remove_fraction(self, name: str) -> None:
        if self.keeps:
            raise NodeagentError(self.keeps)
        self.files.pop(name, None)

    def find(self, cdi_name: str) -> tuple[GpuUuid, ...]:
        """The GPUs that a name means to a container runtime."""
        kind, _, name = cdi_name.partition("=")
        assert kind == PART
        (found,) = [file[name] for file in self.files.values() if name in file]
        return found[0]


class FakeFolders:
    """What containers are told of their limits, by folder."""

    def __init__(self) -> None:
        self.limits: dict[str, tuple[FractionLimit, ...]] = {}
        self.prepared: list[str] = []
        self.used = set[str]()
        self.measures: list[Mapping[str, Sequence[MeasuredUtilization | None]]] = []
        self.broken = ""
        self.check = UsageCheck()

    async def prepare(self, name: str) -> None:
        if self.broken:
            raise NodeagentError(self.broken)
        self.prepared.append(name)

    async def write(self, name: str, limits: Sequence[FractionLimit]) -> LimitsFolder:
        if self.broken:
            raise NodeagentError(self.broken)
        self.limits[name] = tuple(limits)
        return LimitsFolder(limits=f"/state/{name}/limits", usage=f"/state/{name}/usage")

    async def remove(self, name: str) -> None:
        self.limits.pop(name, None)
        self.prepared = [each for each in self.prepared if each != name]

    async def read(self, name: str) -> tuple[FractionLimit, ...]:
        return self.limits.get(name, ())

    async def is_used(self, name: str) -> bool:
        return name in self.used

    async def measure(self, measures: Mapping[str, Sequence[MeasuredUtilization | None]]) -> None:
        self.measures.append(measures)
        if self.broken:
            raise NodeagentError(self.broken)

    async def list_names(self) -> tuple[str, ...]:
        return tuple({*self.limits, *self.prepared})

    async def bound_usage(self) -> UsageCheck:
        if self.broken:
            raise NodeagentError(self.broken)
        return self.check


class FakeLibrary:
    """What holds containers to their parts, on the host or not."""

    def __init__(self) -> None:
        self.broken = ""

    async def install(self) -> LibraryFiles:
        if self.broken:
            raise NodeagentError(self.broken)
        return LibraryFiles(library="/lib/libvgpu.so", preload="/lib/preload")


class FakePlaces:
    """Which pods processes belong to."""

    def __init__(self) -> None:
        self.known: dict[int, ProcessPlace] = {}

    async def read_places(self, pids: Sequence[int]) -> Mapping[int, ProcessPlace]:
        return {pid: self.known[pid] for pid in pids if pid in self.known}


class FakePods:
    """What the API server says of pods; each table that is put is told, and `broken` ends the following."""

    def __init__(self) -> None:
        self.table: dict[tuple[str, str], PodRequest] = {}
        self.broken = self.refused = ""
        self.written: list[tuple[PodIdentity, Mapping[str, str]]] = []
        self.begun = 0
        self.first_list_seconds = 0.0
        """How long the API server takes for the list of pods."""
        self._changed = anyio.Event()

    def put(self, *pods: PodRequest) -> None:
        self.table = {(pod.pod.namespace, pod.pod.name): pod for pod in pods}
        self._changed.set()

    async def annotate(self, pod: PodIdentity, annotations: Mapping[str, str]) -> None:
        if self.refused:
            raise NodeagentError(self.refused)
        self.written.append((pod, annotations))

    async def follow(self) -> AsyncGenerator[Mapping[tuple[str, str], PodRequest], None]:
        self.begun += 1
        if self.first_list_seconds:
            await anyio.sleep(self.first_list_seconds)
        while True:
            if self.broken:
                raise NodeagentError(self.broken)
            self._changed = anyio.Event()
            yield dict(self.table)
            await self._changed.wait()


class Held:
    """A container of a pod, as the kubelet has it, and the name that its runtime was told."""

    def __init__(self, pod: PodIdentity, container: str, cores: Sequence[str], memory: Sequence[str]) -> None:
        self.pod, self.container = pod, container
        self.cores, self.memory = tuple(map(DeviceId, cores)), tuple(map(DeviceId, memory))
        self.cdi_name = ""


class World:
    """Everything round the component, which may be ended and begun again."""

    def __init__(self, clock: FakeClock, inventory: Inventory | None = None, **fractions: Any) -> None:
        self.clock, self.inventory = clock, inventory or make_parted()
        self.live, self.bus = LiveSettings(make_settings(**fractions)), Bus(clock)
        self.conditions = Conditions(self.bus, clock, CATALOGUE)
        self.store, self.kubelet, self.core, self.memory = FakeStore(), FakeKubelet(), CORE, MEMORY
        self.journal = Journal(
            self.bus, self.conditions, clock, self.live, self.kubelet,  # type: ignore[arg-type]  # as far as it is used
            open_store=lambda: self.store, read_node=lambda: Node("machine", "boot"),  # type: ignore[arg-type,return-value]
        )  # fmt: skip
        self.relay, self.orders = FractionPlugins(), OrderHandlers()
        self.specs, self.folders, self.library = FakeSpecs(), FakeFolders(), FakeLibrary()
        self.receipts: ContainerReceipts | None = None
        self.pods: FakePods | None = None
        self.containers: tuple[PodContainer, ...] | None = ()
        self.held: list[Held] = []
        self.places: FakePlaces | None = None
        self.kubelet_is_away, self.is_runtime_of_kubelet = False, True

    @asynccontextmanager
    async def running(self) -> AsyncIterator[None]:
        """Journal and component at work, on a node that is known and healthy."""
        async with self.keeping():
            self.tell()
            async with self.giving():
                yield

    @asynccontextmanager
    async def keeping(self) -> AsyncIterator[None]:
        """The journal is kept."""
        keeper = Allocations(self.bus, self.conditions, self.clock, self.live, self.journal)
        async with anyio.create_task_group() as tasks:
            await tasks.start(lambda task_status: keeper.run(task_status=task_status))
            yield
            tasks.cancel_scope.cancel()

    @asynccontextmanager
    async def giving(self) -> AsyncIterator[None]:
        """The component is at work."""
        component = self.build()
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(self._register)
            await tasks.start(lambda task_status: component.run(task_status=task_status))
            await anyio.sleep(0.1)
            yield
            tasks.cancel_scope.cancel()

    async def _register(self) -> None:
        """The kubelet takes what is offered, unless it is away."""
        with self.bus.watch(FractionOffers, client="test") as offers:
            async for each in offers:
                taken = () if self.kubelet_is_away else each.value.resources
                resources = tuple(AdvertisedResource(name=name, socket="s", registered=True) for name in taken)
                self.tell(PluginState(resources=resources))

    def build(self) -> Fractions:
        open_pods = None if self.pods is None else self._open_pods
        sources = poll_task.Sources(self.kubelet, self._list_containers, self.places, open_pods)  # type: ignore[arg-type]
        return Fractions(
            self.bus, self.conditions, self.clock, self.live, FractionHandles(self.relay, self.orders), self.journal,
            reconcile_task.Files(lambda: self.specs, self.folders, self.library, receipts=self.receipts), sources,
        )  # fmt: skip

    async def set_limits(self, **limits: Any) -> str:
        return await self.orders.give(SET_PART, LimitsCommand(**limits, who="me"))

    async def _list_containers(self) -> tuple[PodContainer, ...]:
        if self.containers is None:
            raise NodeagentError("the runtime does not answer")
        return (*self.containers, PROXY) if self.is_runtime_of_kubelet else self.containers

    async def _open_pods(self) -> FakePods:
        assert self.pods is not None
        return self.pods

    def tell(self, *states: object) -> None:
        """These states, or that all GPUs are known, healthy and given in parts."""
        known = (self.inventory, make_offering(self.inventory), make_health(self.inventory))
        for state in states or known:
            self.bus.publish_state(state, source="test")

    async def change(self, state: Inventory | Offering | HealthReport | DriverState | RuntimeState) -> None:
        """Something has changed, and everybody has heard of it."""
        self.tell(state)
        await anyio.sleep(0.1)

    # The kubelet's part.

    def plugin(self, resource: ResourceName | None = None) -> DevicePlugin:
        return self.relay.list_plugins()[resource or self.core]

    async def count_healthy(self, resource: ResourceName | None = None) -> int:
        return sum(device.healthy for device in await self.plugin(resource).wait_devices(None))

    async def list_free(self, resource: ResourceName) -> list[DeviceId]:
        taken = {device for each in self.held for device in (*each.cores, *each.memory)}
        devices = await self.plugin(resource).wait_devices(None)
        return [device.id for device in devices if device.healthy and device.id not in taken]

    async def admit(
        self, name: str, cores: int, blocks: int = 0, *, container: str = "main", share: Held | None = None
    ) -> Held:
        """The kubelet chooses ids, asks for both resources, and writes down who has them.

        With `share` they are those of another container of the pod, as far as there are so many.
        """
        pod = PodIdentity(namespace="ns", name=name, uid=share.pod.uid if share is not None else f"uid-{name}-1")
        shared = ((), ()) if share is None else (share.cores, share.memory)
        chosen = []
        for resource, count, reused in ((self.core, cores, shared[0]), (self.memory, blocks, shared[1])):
            free = [] if count <= len(reused) else await self.list_free(resource)
            assert len(reused) + len(free) >= count, f"a scheduler would not send {name} here"
            chosen.append([*reused, *free][:count])
        held = Held(pod, container, *chosen)
        answer = await self.plugin(self.core).allocate(held.cores)
        (held.cdi_name,) = answer.cdi_devices
        if held.memory:
            assert (await self.plugin(self.memory).allocate(held.memory)).cdi_devices == ()
        self.held.append(held)
        self.note()
        return held

    def note(self) -> None:
        """The kubelet's list and its notes say what is held; the list knows no init containers."""
        entries = [
            (each, resource, devices)
            for each in self.held
            for resource, devices in ((self.core, each.cores), (self.memory, each.memory))
            if devices
        ]
        named = {PodIdentity(namespace=PROXY.namespace, name=PROXY.pod), *(each.pod for each in self.held)}
        self.kubelet.listing = PodListing(
            pods=tuple(PodIdentity(namespace=pod.namespace, name=pod.name) for pod in named),
            containers=tuple(
                ContainerDevices(
                    pod=PodIdentity(namespace=each.pod.namespace, name=each.pod.name),
                    container=each.container, resource=resource, devices=devices,
                )
                for each, resource, devices in entries
                if not each.container.startswith("init")
            ),
        )  # fmt: skip
        self.kubelet.checkpoint = KubeletCheckpoint(
            containers=tuple(
                ContainerDevices(
                    pod=PodIdentity(namespace="", name="", uid=each.pod.uid),
                    container=each.container, resource=resource, devices=devices,
                    cdi_names=(each.cdi_name,) if resource == self.core else (),
                )
                for each, resource, devices in entries
            )
        )  # fmt: skip

    async def start(self, held: Held) -> Binding:
        """The container starts: both plugins are asked, and its runtime looks its name up."""
        if held.memory:
            await self.plugin(self.memory).pre_start(held.memory)
        await self.plugin(self.core).pre_start(held.cores)
        await anyio.sleep(NAME_PAUSES_SECONDS[0] + 0.1)  # whose it is by name may be found out after the answer
        (binding,) = [
            each
            for each in self.table.bindings.values()
            if any(set(self.table.reservations[number].devices) == set(held.cores) for number in each.reservations)
        ]
        assert self.specs.find(held.cdi_name) == tuple(part.gpu for part in binding.parts)
        return binding

    def end(self, held: Held) -> None:
        """The kubelet forgets a container that has ended."""
        self.held.remove(held)
        self.note()

    # What can be seen.

    @property
    def table(self) -> FractionTable:
        table = self.journal.parts()
        assert table is not None
        return table

    def durable_bindings(self) -> list[Binding]:
        """What the next agent would read."""
        parsed = parse_journal(self.store.current or b"")
        assert not parsed.damage
        return list(replay(parsed.records, 1000).fractions.bindings.values())

    @property
    def offers(self) -> FractionOffers:
        envelope = self.bus.latest(FractionOffers)
        assert envelope is not None
        return envelope.value

    def facts(self, *kinds: type) -> list[Any]:
        return [envelope.value for envelope in self.bus.history() if isinstance(envelope.value, kinds)]

    def details(self, code: str) -> dict[str, str]:
        return {each.key: each.detail for each in self.conditions.all_set() if each.code == code}


def driver(phase: DriverPhase, detail: str = "") -> DriverState:
    return DriverState(phase=phase, detail=detail)
