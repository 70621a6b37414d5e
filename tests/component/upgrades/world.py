"""An agent that upgrades the driver of a node which does what the test says."""

from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager

import anyio
import pytest
from msgspec.structs import replace

from nodeagent.components.repairs.drain_task import DomainDrain
from nodeagent.components.repairs.holding_task import UpgradeSlots
from nodeagent.components.repairs.slots_task import RepairSlots
from nodeagent.components.upgrades.acting_task import UpgradePorts
from nodeagent.components.upgrades.component import Upgrades
from nodeagent.config.live import LiveSettings
from nodeagent.config.schema import Settings
from nodeagent.config.sections.hardware import DriverSettings, RepairsSettings
from nodeagent.config.sections.repairers import SlotDomainSettings, SlotsSettings
from nodeagent.core.channels.bus import Bus
from nodeagent.core.conditions import Conditions
from nodeagent.core.life.orders import OrderHandlers
from nodeagent.edge.host.driver.module_loader import HostServices
from nodeagent.model.allocation import Allocation, AllocationTable, PodIdentity
from nodeagent.model.cluster import DEPLOY_LABEL, ClusterNode
from nodeagent.model.conditions import CATALOGUE
from nodeagent.model.cordons import CordonSource, CordonTable
from nodeagent.model.driver import DriverEvidence, DriverPhase, DriverState, LoadedModule
from nodeagent.model.errors import DriverUnavailable, JournalUnavailable, NodeagentError
from nodeagent.model.events import DriverUpgradeStepped
from nodeagent.model.ids import DeviceId
from nodeagent.model.orders import AuthoredCommand, Order
from nodeagent.model.proof import ProofPlan, ProverReadings
from nodeagent.model.repairs import ToolAnswer
from nodeagent.model.slots import CLUSTER
from nodeagent.model.upgrades import DriverUpgrade, UpgradeState
from nodeagent.rules.cordons import plan_repairs
from tests.component.repairs.test_drain import Pods
from tests.fakes.repair_slots import Store
from tests.support.allocations import GPU
from tests.support.gpus import gpu_uuid, make_node
from tests.support.repairs import NEW, OLD
from tests.support.virtual_time import FakeClock

pytestmark = pytest.mark.virtual_time

NODE = make_node(2)
POD = PodIdentity(namespace="team", name="train", uid="u")
HELD = AllocationTable(
    allocations=(Allocation(number=1, resource=GPU, devices=(DeviceId(gpu_uuid(0)),), since_seconds=0.0, pod=POD),)
)
EXPORTER = f"{DEPLOY_LABEL}dcgm-exporter"
BY_COMMAND = DriverSettings(
    upgrade="act", wanted_version=NEW, installed_by="command", upgrade_command=("install-driver", NEW)
)
ALICE = AuthoredCommand(who="alice")
LONG = 120.0


class Memory:
    """The journal's part: survives the component and the boot."""

    def __init__(self) -> None:
        self.kept, self.boot = dict[int, DriverUpgrade](), "one"
        self.is_read, self.is_broken = True, False

    def read_boot(self) -> str:
        return self.boot

    def upgrades(self) -> Mapping[int, DriverUpgrade] | None:
        return dict(self.kept) if self.is_read else None

    async def keep_upgrade(self, upgrade: DriverUpgrade) -> DriverUpgrade:
        await anyio.lowlevel.checkpoint()
        if self.is_broken:
            raise JournalUnavailable("/state/journal", "no space left on device")
        kept = upgrade if upgrade.number else replace(upgrade, number=len(self.kept) + 1)
        before = self.kept.get(kept.number)
        assert before is None or before.phase.rank <= kept.phase.rank, "a phase was gone back to"
        self.kept[kept.number] = kept
        return kept


class Host:
    """The driver with its modules and services, the API server's labels, and the prover; outlives the agent."""

    def __init__(self) -> None:
        self.module = self.installed = OLD
        self.done = list[str]()
        self.services = {"nvidia-persistenced": True, "nvidia-dcgm": False}
        self.labels = {EXPORTER: "true", f"{DEPLOY_LABEL}dcgm": "false"}
        self.command, self.command_seconds = ToolAnswer(code=0), 60.0
        self.removal, self.load_problem, self.service_problem = ToolAnswer(code=0), "", ""
        self.refuses_release = self.refuses_resume = self.api_is_down = False
        self.readings, self.blocker = ProverReadings(), 0
        self.exporter_pods: tuple[str, ...] = ()
        self.driver_pods: tuple[str, ...] = ("gpu/driver-1",)
        self.budget = ""
        self.world: World | None = None
        self.released = self.stuck = ""

    async def read_evidence(self) -> DriverEvidence:
        if self.stuck:
            return DriverEvidence(stuck=self.stuck)
        loaded = bool(self.module)
        return DriverEvidence(module_loaded=loaded, module_version=self.module, released=self.released)

    async def wait_change(self) -> None:
        await anyio.sleep_forever()

    def tell(self) -> None:
        phase = DriverPhase.RELEASED if self.released else DriverPhase.READY if self.module else DriverPhase.NOT_LOADED
        state = DriverState(phase=phase, module_version=self.module, library_version=self.installed)
        assert self.world is not None
        self.world.bus.publish_state(state, source="driver")

    async def release(self, reason: str) -> None:
        if self.refuses_release:
            raise DriverUnavailable("release", "a call hangs")
        self.done.append("release")
        self.released = reason
        self.tell()

    async def resume(self) -> None:
        if self.refuses_resume:
            raise DriverUnavailable("resume", "no library")
        self.done.append("resume")
        self.released = ""
        self.tell()

    async def read_loaded(self) -> tuple[LoadedModule, ...]:
        names = ("nvidia_peermem", "nvidia_uvm")
        return (
            *(LoadedModule(name=name, references=0) for name in names),
            LoadedModule(name="nvidia", references=2 + self.blocker, holders=names),
        )

    async def unload(self, modules: Sequence[str]) -> ToolAnswer:
        self.done.append(f"unload {' '.join(modules)}")
        if self.removal.code == 0:
            self.module = ""
            self.tell()
        return self.removal

    async def load(self, modules: Sequence[str]) -> str:
        self.done.append(f"load {' '.join(modules)}")
        if "nvidia-peermem" in modules or "nvidia_peermem" in modules:
            return "peermem: no such module"
        if not self.load_problem:
            self.module = self.module or self.installed
            self.tell()
        return self.load_problem

    async def run(self, argv: Sequence[str], timeout_seconds: float) -> ToolAnswer:
        if argv[0] != "systemctl":
            self.done.append(" ".join(argv))
            await anyio.sleep(self.command_seconds)
            if self.command.code == 0:
                self.installed = argv[-1]
            return self.command
        service = argv[-1]
        if argv[1] == "is-active":
            return ToolAnswer(code=0 if self.services.get(service) else 3)
        self.done.append(f"{argv[1]} {service}")
        if self.service_problem:
            return ToolAnswer(code=1, said=self.service_problem)
        self.services[service] = argv[1] == "start"
        return ToolAnswer(code=0)

    async def read_labels(self) -> Mapping[str, str]:
        if self.api_is_down:
            raise NodeagentError("the API server does not answer")
        return dict(self.labels)

    async def write_label(self, key: str, value: str) -> None:
        self.labels[key] = value

    async def list_pods(self, applications: Sequence[str]) -> tuple[str, ...]:
        return self.exporter_pods

    async def list_driver_pods(self) -> tuple[str, ...]:
        return self.driver_pods

    async def send_away(self, pod: str) -> str:
        self.done.append(f"send away {pod}")
        return self.budget

    async def prove(self, gpu: str, plan: ProofPlan) -> ProverReadings:
        self.done.append(f"prove {gpu}")
        return self.readings


class World:
    """An agent on the host; with the memory of another world it is the next agent."""

    def __init__(
        self,
        clock: FakeClock,
        host: Host,
        settings: DriverSettings = BY_COMMAND,
        memory: Memory | None = None,
        *,
        has_cluster: bool = True,
        has_prover: bool = True,
        store: Store | None = None,
        name: str = "a",
    ) -> None:
        """With a store an upgrade needs a slot of the cluster."""
        domains = () if store is None else (SlotDomainSettings(label=CLUSTER, slots=1),)
        repairs = RepairsSettings(slots=SlotsSettings(domains=domains))
        self.clock, self.bus, self.host = clock, Bus(clock), host
        self.conditions = Conditions(self.bus, clock, CATALOGUE)
        self.memory, self.live = memory or Memory(), LiveSettings(Settings(driver=settings, repairs=repairs))
        self.orders, self.steps, self.pods = OrderHandlers(), list[str](), Pods()
        drain = DomainDrain(
            self.bus,
            self.conditions,
            clock,
            self.live,
            self.pods if has_cluster else None,
            None,
            source=CordonSource.DRIVER,
        )
        cluster = host if has_cluster else None
        services = HostServices(host.run, lambda: self.live.now.driver.services)
        slots = None if store is None else RepairSlots(store, name, self.memory.read_boot, clock)
        held, prover = UpgradeSlots(slots, self.bus, self.live, clock), host if has_prover else None
        rehearsal = self.pods if has_cluster else None
        self.ports = UpgradePorts(host, host, host, drain, held, host.run, services, cluster, rehearsal, prover)  # type: ignore[arg-type]  # of the source what is used
        host.world, host.released = self, ""
        self.bus.publish_state(NODE, source="test")
        self.bus.publish_state(AllocationTable(), source="test")
        if has_cluster:
            self.bus.publish_state(ClusterNode(name="n", uid="u"), source="test")
        host.tell()

    @asynccontextmanager
    async def running(self, seconds: float = 1.0) -> AsyncIterator["World"]:
        component = Upgrades(self.bus, self.conditions, self.clock, self.live, self.memory, self.orders, self.ports)
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(self._keep_cordons)
            tasks.start_soon(self._listen)
            await tasks.start(lambda *, task_status: component.run(task_status=task_status))
            await anyio.sleep(seconds)
            yield self
            tasks.cancel_scope.cancel()

    async def _keep_cordons(self) -> None:
        with self.bus.watch(UpgradeState, client="test cordons") as states:
            async for envelope in states:
                before = (self.bus.read(CordonTable) or CordonTable()).by_source.get(CordonSource.DRIVER, ())
                now = plan_repairs(envelope.value.closed_gpus, NODE, before, self.clock.wall(), CordonSource.DRIVER)
                if now != before:
                    self.bus.publish_state(CordonTable(by_source={CordonSource.DRIVER: now}), source="test")

    async def _listen(self) -> None:
        with self.bus.listen(DriverUpgradeStepped, client="test") as facts:
            async for envelope in facts:
                self.steps.append(envelope.value.step)

    async def order(self, order: Order[AuthoredCommand]) -> str:
        said = await self.orders.give(order, ALICE)
        await anyio.sleep(1)
        return said

    @property
    def upgrade(self) -> DriverUpgrade:
        return max(self.memory.kept.values(), key=lambda one: one.number)

    @property
    def state(self) -> UpgradeState:
        found = self.bus.read(UpgradeState)
        assert found is not None
        return found

    def detail(self, code: str) -> str:
        return "; ".join(one.detail for one in self.conditions.active() if one.code == code)
