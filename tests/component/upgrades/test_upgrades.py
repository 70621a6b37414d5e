"""The upgrade of a driver on a node that does what the test says: from the closing of the GPUs to the proof."""

from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager

import anyio
import pytest
from msgspec.structs import replace

from nodeagent.app.wiring.driver_upgrades import DRAINING
from nodeagent.components.repairs.drain_task import DomainDrain
from nodeagent.components.upgrades.acting_task import UpgradePorts
from nodeagent.components.upgrades.component import DUE, FAILED, UNDER_WAY, Upgrades
from nodeagent.config.live import LiveSettings
from nodeagent.config.schema import Settings
from nodeagent.config.sections.hardware import DriverSettings
from nodeagent.core.channels.bus import Bus
from nodeagent.core.conditions import Conditions
from nodeagent.core.life.orders import OrderHandlers
from nodeagent.core.log.audit import Change, keeping
from nodeagent.model.allocation import Allocation, AllocationTable, PodIdentity
from nodeagent.model.cluster import DEPLOY_LABEL, PAUSED_FOR_UPGRADE, ClusterNode
from nodeagent.model.conditions import CATALOGUE
from nodeagent.model.cordons import CordonSource, CordonTable
from nodeagent.model.driver import DriverEvidence, DriverPhase, DriverState, LoadedModule
from nodeagent.model.errors import ControlRefused, DriverUnavailable, JournalUnavailable, NodeagentError
from nodeagent.model.events import DriverUpgradeStepped, GpuEventReported
from nodeagent.model.gpu import Inventory
from nodeagent.model.ids import DeviceId
from nodeagent.model.orders import ABORT_UPGRADE, PAUSE_UPGRADE, RESUME_UPGRADE, AuthoredCommand, Order
from nodeagent.model.proof import ProofPlan, ProverReadings
from nodeagent.model.repairs import RepairState, ToolAnswer
from nodeagent.model.upgrades import UPGRADE_LABEL, DriverUpgrade, UpgradeEnding, UpgradePhase, UpgradeState
from nodeagent.rules.cordons import plan_repairs
from tests.component.repairs.test_drain import Pods
from tests.support.allocations import GPU
from tests.support.gpus import gpu_uuid, make_node
from tests.support.repairs import make_attempt, make_session
from tests.support.upgrades import NEW, OLD, make_upgrade
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
        self.released = ""

    async def read_evidence(self) -> DriverEvidence:
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
    ) -> None:
        self.clock, self.bus, self.host = clock, Bus(clock), host
        self.conditions = Conditions(self.bus, clock, CATALOGUE)
        self.memory, self.live = memory or Memory(), LiveSettings(Settings(driver=settings))
        self.orders, self.steps, self.pods = OrderHandlers(), list[str](), Pods()
        drain = DomainDrain(
            self.bus,
            self.conditions,
            clock,
            self.live,
            self.pods,
            None,
            source=CordonSource.DRIVER,
            condition=DRAINING,
        )
        cluster = host if has_cluster else None
        self.ports = UpgradePorts(host, host, host, drain, host.run, cluster, host if has_prover else None)  # type: ignore[arg-type]  # of the source what is used
        host.world, host.released = self, ""
        self.bus.publish_state(NODE, source="test")
        self.bus.publish_state(AllocationTable(), source="test")
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


async def test_a_driver_is_upgraded_and_everybody_is_back(clock: FakeClock) -> None:
    """A pod leaves, others are paused, the modules are exchanged, and the GPUs are proven before they are open."""
    host, changes = Host(), list[Change]()
    host.exporter_pods, host.api_is_down = ("gpu/exporter",), True
    world = World(clock, host)
    world.bus.publish_state(HELD, source="test")
    with keeping(changes.append):
        async with world.running():
            assert world.state.pods == ("team/train",)
            assert "phase drain: pods leave: team/train" in world.detail(UNDER_WAY)
            assert "team/train: it is asked to leave in" in world.detail(DRAINING)
            assert set(world.state.closed_gpus) == {gpu_uuid(0), gpu_uuid(1)}
            await anyio.sleep(65)
            assert world.pods.asked == [("evict", "7")]
            world.bus.publish_state(AllocationTable(), source="test")
            await anyio.sleep(1)
            assert "the API server does not answer" in world.detail(UNDER_WAY)
            host.api_is_down = False
            await anyio.sleep(15)
            assert (world.upgrade.phase, host.labels[EXPORTER]) == (UpgradePhase.PAUSE, PAUSED_FOR_UPGRADE)
            assert "gpu/exporter" in world.detail(UNDER_WAY)
            assert host.done == ["stop nvidia-persistenced"]
            host.exporter_pods = ()
            await anyio.sleep(LONG)
            assert world.upgrade.ending is UpgradeEnding.DONE
            assert (world.state.closed_gpus, world.detail(UNDER_WAY), world.detail(DRAINING)) == ({}, "", "")
            assert world.state.sentence == f"driver {NEW} is loaded, as wanted"
            assert world.state.last_seconds is not None
    assert host.done == [
        "stop nvidia-persistenced",
        "release",
        "unload nvidia_peermem nvidia_uvm nvidia",
        f"install-driver {NEW}",
        "load nvidia nvidia-uvm",
        "load nvidia_peermem",
        "start nvidia-persistenced",
        "resume",
        f"prove {gpu_uuid(0)}",
        f"prove {gpu_uuid(1)}",
    ]
    assert host.labels[EXPORTER] == "true"
    assert host.services == {"nvidia-persistenced": True, "nvidia-dcgm": False}
    assert world.steps[0] == f"begun, from {OLD} to {NEW}"
    assert world.steps[-1] == "ended, done"
    assert [one.action for one in changes if one.kind == "driver"] == world.steps


@pytest.mark.parametrize("phase", [UpgradePhase.DRAIN, UpgradePhase.PAUSE, UpgradePhase.UNLOAD, UpgradePhase.INSTALL])
async def test_a_killed_agents_upgrade_goes_on(clock: FakeClock, phase: UpgradePhase) -> None:
    """In whichever phase the kill came; whoever was put aside before comes back, too."""
    host, memory = Host(), Memory()
    if phase is UpgradePhase.DRAIN:
        first = World(clock, host, memory=memory)
        first.bus.publish_state(HELD, source="test")
    elif phase is UpgradePhase.PAUSE:
        first, host.exporter_pods = World(clock, host, memory=memory), ("gpu/exporter",)
    else:
        first = World(clock, host, memory=memory)
        host.removal = ToolAnswer(code=1, said="in use") if phase is UpgradePhase.UNLOAD else host.removal
    async with first.running(20.0):
        assert first.upgrade.phase is phase
    host.exporter_pods, host.removal = (), ToolAnswer(code=0)
    memory.boot = "two" if phase is UpgradePhase.PAUSE else "one"
    async with World(clock, host, memory=memory).running(2 * LONG) as after:
        assert (after.upgrade.number, after.upgrade.ending, after.upgrade.boot) == (1, UpgradeEnding.DONE, memory.boot)
    assert host.labels[EXPORTER] == "true"
    assert host.services["nvidia-persistenced"]


async def test_after_a_reboot_nothing_waits_for_pods_that_wait_for_the_driver(clock: FakeClock) -> None:
    memory = Memory()
    memory.kept[1] = make_upgrade()
    host = Host()
    host.module = ""
    world = World(clock, host, memory=memory)
    world.bus.publish_state(HELD, source="test")
    async with world.running(LONG):
        assert (world.upgrade.ending, host.module) == (UpgradeEnding.DONE, NEW)
        assert "taken up after a reboot" not in world.steps
        assert not any(one.startswith("unload") for one in host.done)


async def test_a_command_that_fails_leaves_the_node_with_the_driver_that_it_had(clock: FakeClock) -> None:
    """The failure is told until a person allows another try, or another version is wanted."""
    host = Host()
    host.command = ToolAnswer(code=100, said="no such package")
    async with World(clock, host).running(2 * LONG) as world:
        assert (world.upgrade.ending, host.module) == (UpgradeEnding.FAILED, OLD)
        assert world.detail(FAILED) == "driver.upgrade_command: exit code 100: no such package"
        assert (host.labels[EXPORTER], world.state.closed_gpus) == ("true", {})
        assert "`nodeagent driver resume` allows another try" in world.detail(DUE)
        assert len(world.memory.kept) == 1
        host.command = ToolAnswer(code=0)
        assert "may be tried again" in await world.order(RESUME_UPGRADE)
        await anyio.sleep(2 * LONG)
        assert [one.ending for one in world.memory.kept.values()] == [UpgradeEnding.FAILED, UpgradeEnding.DONE]
        assert world.detail(FAILED) == ""
        with pytest.raises(ControlRefused, match="is paused or has failed"):
            await world.order(RESUME_UPGRADE)


async def test_modules_in_use_are_named_and_in_the_end_left_alone(clock: FakeClock) -> None:
    settings = replace(BY_COMMAND, upgrade_seconds=300.0)
    host = Host()
    host.blocker = 1
    async with World(clock, host, settings).running(100.0) as world:
        assert "the module nvidia is in use by processes or the kernel, 1 times" in world.detail(UNDER_WAY)
        host.blocker, host.removal = 0, ToolAnswer(code=1, said="Module nvidia is in use.")
        await anyio.sleep(60)
        assert "exit code 1: Module nvidia is in use." in world.detail(UNDER_WAY)
        await anyio.sleep(400)
        assert world.upgrade.ending is UpgradeEnding.FAILED
        assert "the modules are not out after 300 s" in world.detail(FAILED)
    assert not any(one.startswith("install") for one in host.done)


async def test_a_driver_that_is_not_let_go_is_told(clock: FakeClock) -> None:
    host = Host()
    host.refuses_release = True
    async with World(clock, host).running(20.0) as world:
        assert "cannot release: a call hangs" in world.detail(UNDER_WAY)
        assert not any(one.startswith("unload") for one in host.done)


async def test_whoever_comes_in_the_last_moment_keeps_the_driver(clock: FakeClock) -> None:
    host = Host()
    world = World(clock, host)
    release = host.release

    async def come(reason: str) -> None:
        await release(reason)
        world.bus.publish_state(HELD, source="test")

    host.release = come  # type: ignore[method-assign]  # a pod that starts between the two looks
    async with world.running(20.0):
        assert world.upgrade.phase is UpgradePhase.UNLOAD
        assert "held by team/train" in world.detail(UNDER_WAY)
        assert not any(one.startswith("unload") for one in host.done)


async def test_a_person_holds_an_upgrade_goes_on_and_gives_it_up(clock: FakeClock) -> None:
    host = Host()
    world = World(clock, host)
    world.bus.publish_state(HELD, source="test")
    async with world.running():
        world.memory.is_broken = True
        with pytest.raises(ControlRefused, match="stays as it was"):
            await world.order(PAUSE_UPGRADE)
        world.memory.is_broken = False
        assert await world.order(PAUSE_UPGRADE) == f"upgrade 1 to driver {NEW} is held before its next step"
        await anyio.sleep(LONG)
        assert (world.pods.asked, "paused by alice" in world.detail(UNDER_WAY)) == ([], True)
        await world.order(RESUME_UPGRADE)
        assert len(world.pods.asked) == 1
        await world.order(ABORT_UPGRADE)
        assert world.upgrade.ending is UpgradeEnding.ABORTED
        assert (host.done, world.state.closed_gpus) == ([], {})
        assert "was not done: aborted by alice" in world.detail(DUE)
        with pytest.raises(ControlRefused, match="no upgrade of the driver is under way"):
            await world.order(ABORT_UPGRADE)


async def test_an_upgrade_that_is_given_up_without_modules_loads_what_is_there(clock: FakeClock) -> None:
    host = Host()
    host.command_seconds = 1000.0
    async with World(clock, host).running(60.0) as world:
        assert (world.upgrade.phase, host.module) == (UpgradePhase.INSTALL, "")
        await world.order(ABORT_UPGRADE)
        host.load_problem = "no such module"
        await anyio.sleep(1000)
        assert "aborted by alice; no driver is loaded: no such module" in world.detail(UNDER_WAY)
        host.load_problem = ""
        await anyio.sleep(60)
        assert world.upgrade.ending is UpgradeEnding.ABORTED
    assert host.labels[EXPORTER] == "true"


@pytest.mark.parametrize("by", ["label", "settings"])
async def test_label_and_settings_give_an_upgrade_up(clock: FakeClock, by: str) -> None:
    world = World(clock, Host())
    world.bus.publish_state(HELD, source="test")
    async with world.running():
        if by == "label":
            node = ClusterNode(name="n", uid="u", labels={UPGRADE_LABEL: "off"})
            world.bus.publish_state(node, source="test")
        else:
            world.live.replace(Settings(driver=replace(BY_COMMAND, upgrade="observe")))
        await anyio.sleep(15)
        assert world.upgrade.ending is UpgradeEnding.ABORTED
        assert len(world.memory.kept) == 1


async def test_in_mode_observe_it_is_said_and_nothing_is_done(clock: FakeClock) -> None:
    host = Host()
    async with World(clock, host, replace(BY_COMMAND, upgrade="observe")).running(LONG) as world:
        assert world.detail(DUE) == f"would upgrade the driver from {OLD} to {NEW}; mode is observe"
        assert (host.done, world.memory.kept) == ([], {})


async def test_libraries_that_ran_ahead_of_the_module_are_caught_up_with(clock: FakeClock) -> None:
    """After an unattended upgrade of the packages; without a command, and without an API server."""
    host = Host()
    host.installed = NEW
    settings = DriverSettings(upgrade="act", wanted_version="installed")
    async with World(clock, host, settings, has_cluster=False, has_prover=False).running(LONG) as world:
        assert (world.upgrade.ending, host.module) == (UpgradeEnding.DONE, NEW)
        assert not any(one.startswith("install") for one in host.done)


async def test_an_upgrade_waits_for_repairs_and_for_a_person_with_the_driver(clock: FakeClock) -> None:
    host = Host()
    world = World(clock, host)
    host.released = "by hand"
    host.tell()
    acting = RepairState(sessions=(make_session(4, attempts=[make_attempt(outcome=None)]),))
    async with world.running():
        assert "the driver is released by `nodeagent release`" in world.detail(DUE)
        world.bus.publish_state(acting, source="test")
        host.released = ""
        host.tell()
        await anyio.sleep(1)
        assert "fault session 4 has an act under way" in world.detail(DUE)
        world.bus.publish_state(RepairState(), source="test")
        await anyio.sleep(LONG)
        assert world.upgrade.ending is UpgradeEnding.DONE
    empty = World(clock, Host())
    empty.bus.retract_state(Inventory)
    async with empty.running():
        assert "the GPUs and their holders are not known yet" in empty.detail(DUE)
        assert empty.state.pods == ()


async def test_the_way_back_waits_with_a_reason_and_gives_all_back(clock: FakeClock) -> None:
    """A service that does not start, a driver that is not taken back or does not work, labels that are not written."""
    host = Host()
    host.refuses_resume, host.service_problem = True, "unit not found"
    memory = Memory()
    aside = replace(make_upgrade().put_aside, services=("nvidia-persistenced",), labels={EXPORTER: "true"})
    host.labels[EXPORTER], host.module = PAUSED_FOR_UPGRADE, NEW
    memory.kept[1] = make_upgrade(UpgradePhase.RESTORE, put_aside=aside)
    world = World(clock, host, memory=memory)
    async with world.running():
        assert "the service nvidia-persistenced does not start: exit code 1: unit not found" in world.detail(UNDER_WAY)
        host.service_problem, host.api_is_down = "", True
        world.bus.publish_state(DriverState(phase=DriverPhase.FABRIC_NOT_READY, module_version=NEW), source="test")
        await anyio.sleep(15)
        assert "the driver does not work yet: fabric_not_ready" in world.detail(UNDER_WAY)
        host.tell()
        await anyio.sleep(15)
        assert "the API server does not answer" in world.detail(UNDER_WAY)
        host.api_is_down = False
        await anyio.sleep(15)
        assert world.upgrade.ending is UpgradeEnding.DONE
    assert host.labels[EXPORTER] == "true"


async def test_a_driver_that_is_not_taken_back_is_told(clock: FakeClock) -> None:
    host = Host()
    host.refuses_resume = True
    async with World(clock, host).running(LONG) as world:
        assert "the driver was not taken back: cannot resume: no library" in world.detail(UNDER_WAY)
        host.refuses_resume = False
        await anyio.sleep(15)
        assert world.upgrade.ending is UpgradeEnding.DONE


async def test_a_gpu_that_works_wrongly_with_the_new_driver_is_taken_away(clock: FakeClock) -> None:
    host = Host()
    host.readings = ProverReadings(stopped="cuMemcpyDtoH failed", call="cuMemcpyDtoH", code=214)
    world, told = World(clock, host), list[str]()

    async def listen() -> None:
        with world.bus.listen(GpuEventReported, client="told") as facts:
            async for envelope in facts:
                told.append(envelope.value.kind)

    async with anyio.create_task_group() as tasks:
        tasks.start_soon(listen)
        async with world.running(LONG):
            assert (world.upgrade.ending, told) == (UpgradeEnding.FAILED, ["proof_failed", "proof_failed"])
            assert "the proof of GPU 0 failed" in world.detail(FAILED)
        tasks.cancel_scope.cancel()


async def test_a_driver_pod_leaves_with_its_driver_and_the_next_one_is_waited_for(clock: FakeClock) -> None:
    """The agent takes no module out that a pod has brought; a next agent sends away no later pod."""
    settings = DriverSettings(upgrade="act", wanted_version=NEW, installed_by="container")
    host, memory = Host(), Memory()
    host.budget = "a disruption budget keeps it"
    async with World(clock, host, settings, memory).running(15.0) as world:
        assert "a disruption budget keeps it" in world.detail(UNDER_WAY)
        assert host.done[-1] == "send away gpu/driver-1"
    host.driver_pods, host.budget = ("gpu/driver-2",), ""
    async with World(clock, host, settings, memory).running(15.0) as world:
        assert host.done[-1] == "send away gpu/driver-1"
        host.module = ""
        await anyio.sleep(15)
        assert f"a driver pod brings driver {NEW}" in world.detail(UNDER_WAY)
        host.module = NEW
        host.tell()
        await anyio.sleep(15)
        assert world.upgrade.ending is UpgradeEnding.DONE
    assert not any(one.startswith(("unload", "install")) for one in host.done)
    for has_cluster in (True, False):
        lonely = Host()
        lonely.driver_pods = ()
        async with World(clock, lonely, settings, has_cluster=has_cluster).running(15.0) as world:
            assert "no pod with the driver was found on this node" in world.detail(UNDER_WAY)


async def test_without_a_journal_nothing_begins(clock: FakeClock) -> None:
    host = Host()
    world = World(clock, host)
    world.memory.is_read = False
    async with world.running(15.0):
        assert world.memory.kept == {}
        world.memory.is_read, world.memory.is_broken = True, True
        await anyio.sleep(15)
        assert (world.memory.kept, host.done) == ({}, [])
        world.memory.is_broken = False
        await anyio.sleep(LONG)
        assert world.upgrade.ending is UpgradeEnding.DONE


async def test_labels_without_an_api_server_and_under_another_pause_are_owed(clock: FakeClock) -> None:
    host, memory = Host(), Memory()
    aside = replace(make_upgrade().put_aside, labels={EXPORTER: "true"})
    host.labels[EXPORTER] = f"{PAUSED_FOR_UPGRADE}_paused-for-driver-upgrade"
    memory.kept[1] = make_upgrade(UpgradePhase.RESTORE, put_aside=aside, aborted_by="alice")
    async with World(clock, host, memory=memory, has_cluster=False).running() as world:
        assert f"without an API server the labels {EXPORTER} stay paused" in world.detail(UNDER_WAY)
    async with World(clock, host, memory=memory).running() as world:
        assert "is paused for another reason too" in world.detail(UNDER_WAY)
        host.labels[EXPORTER] = PAUSED_FOR_UPGRADE
        await anyio.sleep(15)
        assert (world.upgrade.ending, host.labels[EXPORTER]) == (UpgradeEnding.ABORTED, "true")
