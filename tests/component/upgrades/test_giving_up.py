"""An upgrade of the driver that is held, given up or left to others, and the way back."""

import anyio
import pytest
from msgspec.structs import replace

from nodeagent.components.upgrades.component import DUE, FAILED, UNDER_WAY
from nodeagent.config.schema import Settings
from nodeagent.config.sections.hardware import DriverSettings
from nodeagent.model.cluster import PAUSED_FOR_UPGRADE, ClusterNode
from nodeagent.model.driver import DriverPhase, DriverState
from nodeagent.model.events import ConfigurationReloaded, GpuEventReported
from nodeagent.model.gpu import Inventory
from nodeagent.model.proof import ProverReadings
from nodeagent.model.repairs import RepairState
from nodeagent.model.upgrades import UPGRADE_LABEL, DriverUpgrade, UpgradeEnding, UpgradePhase
from tests.component.upgrades.world import BY_COMMAND, EXPORTER, HELD, LONG, Host, Memory, World
from tests.support.repairs import NEW, OLD, make_attempt, make_session, make_upgrade
from tests.support.virtual_time import FakeClock

pytestmark = pytest.mark.virtual_time


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
            world.bus.publish_fact(ConfigurationReloaded(changed=("driver.upgrade",)), source="test")
        await anyio.sleep(1)
        assert world.upgrade.ending is UpgradeEnding.ABORTED
        assert len(world.memory.kept) == 1


async def test_no_step_begins_before_the_nodes_labels_are_known(clock: FakeClock) -> None:
    """Neither an upgrade nor the next step of a killed agent's: the label may hold both."""
    host, memory = Host(), Memory()
    node = ClusterNode(name="n", uid="u", labels={UPGRADE_LABEL: "pause"})
    for kept in (dict[int, DriverUpgrade](), {1: make_upgrade()}):
        memory.kept = dict(kept)
        world = World(clock, host, memory=memory)
        world.bus.publish_state(HELD, source="test")
        world.bus.retract_state(ClusterNode)
        async with world.running(LONG):
            assert (world.memory.kept.keys(), world.pods.asked) == (kept.keys(), [])
            assert "the API server has not told the node's labels yet" in world.state.obstacles
            world.bus.publish_state(node, source="test")
            await anyio.sleep(LONG)
            assert (world.memory.kept.keys(), world.pods.asked) == (kept.keys(), [])
            assert f"the node's label {UPGRADE_LABEL}=pause stops it" in world.state.obstacles
            world.bus.publish_state(replace(node, labels={}), source="test")
            await anyio.sleep(LONG)
            assert world.pods.asked


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
        assert "systemctl did not start nvidia-persistenced: exit code 1: unit not found" in world.detail(UNDER_WAY)
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


async def test_a_module_that_cannot_be_seen_is_not_taken_for_unloaded(clock: FakeClock) -> None:
    """Else the new driver would be installed under the holders of the old one."""
    host = Host()
    world = World(clock, host)
    world.bus.publish_state(HELD, source="test")
    async with world.running():
        host.stuck = "reading /proc and /sys hangs"
        await anyio.sleep(LONG)
        assert (world.upgrade.phase, host.done) == (UpgradePhase.DRAIN, [])
        assert "reading /proc and /sys hangs" in world.detail(UNDER_WAY)
        host.stuck = ""
        await anyio.sleep(15)
        assert "pods leave: team/train" in world.detail(UNDER_WAY)


async def test_a_component_that_crashed_knows_its_own_release(clock: FakeClock) -> None:
    """The driver is still let go, in the same process, and no person has done it."""
    host = Host()
    host.blocker = 1
    world = World(clock, host)
    async with world.running(15.0):
        assert host.released == f"upgrade 1 of the driver to {NEW}"
    host.blocker = 0
    async with world.running(LONG):
        assert (world.upgrade.ending, host.released) == (UpgradeEnding.DONE, "")
