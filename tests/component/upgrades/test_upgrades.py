"""The upgrade of a driver on a node that does what the test says: from the closing of the GPUs to the proof."""

import anyio
import pytest
from msgspec.structs import replace

from nodeagent.app.driver_release import DriverRelease
from nodeagent.components.repairs.drain_task import UPGRADE_DRAINING
from nodeagent.components.upgrades.component import DUE, FAILED, UNDER_WAY
from nodeagent.core.life.orders import OrderHandlers
from nodeagent.core.log.audit import Change, keeping
from nodeagent.model.allocation import AllocationTable
from nodeagent.model.cluster import PAUSED_FOR_UPGRADE
from nodeagent.model.drains import BoundPod
from nodeagent.model.errors import ControlRefused
from nodeagent.model.mps import MpsState
from nodeagent.model.orders import (
    ABORT_UPGRADE,
    PAUSE_UPGRADE,
    RELEASE,
    RESUME,
    RESUME_UPGRADE,
    NoArguments,
    ReleaseCommand,
)
from nodeagent.model.repairs import ToolAnswer
from nodeagent.model.upgrades import UpgradeEnding, UpgradePhase
from tests.component.upgrades.world import BY_COMMAND, EXPORTER, HELD, LONG, POD, Host, Memory, World
from tests.support.gpus import gpu_uuid
from tests.support.mps import daemon_of
from tests.support.repairs import NEW, OLD, make_upgrade
from tests.support.virtual_time import FakeClock

pytestmark = pytest.mark.virtual_time


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
            assert "team/train: it is asked to leave in" in world.detail(UPGRADE_DRAINING)
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
            assert (world.state.closed_gpus, world.detail(UNDER_WAY), world.detail(UPGRADE_DRAINING)) == ({}, "", "")
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


async def test_modules_in_use_are_tried_again_soon_at_first_and_then_less_often(clock: FakeClock) -> None:
    """The kernel takes a moment to end the processes of a pod, and a GPU is wanted again."""
    host = Host()
    host.blocker = 1
    async with World(clock, host).running(2.5) as world:
        assert (world.upgrade.phase, host.done.count("release")) == (UpgradePhase.UNLOAD, 2)
        await anyio.sleep(60)
        assert host.done.count("release") == 9
        host.blocker = 0
        await anyio.sleep(10)
        assert world.upgrade.phase is UpgradePhase.INSTALL


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


async def test_nobody_else_takes_the_driver_while_its_modules_are_exchanged(clock: FakeClock) -> None:
    host, orders = Host(), OrderHandlers()
    async with (world := World(clock, host)).running(20):
        DriverRelease(world.bus, world.live, orders, host)  # type: ignore[arg-type]  # of the source only what is used
        assert world.upgrade.phase is UpgradePhase.INSTALL
        for order, command in ((RESUME, NoArguments()), (RELEASE, ReleaseCommand(reason="upgrade"))):
            with pytest.raises(ControlRefused, match="upgrade 1 has the driver until the new one is in"):
                await orders.give(order, command)
        await anyio.sleep(LONG)
        assert world.upgrade.ending is UpgradeEnding.DONE
        assert await orders.give(RESUME, NoArguments()) == "the driver is taken back"


async def test_an_mps_daemon_that_does_not_quit_keeps_the_modules(clock: FakeClock) -> None:
    host = Host()
    world = World(clock, host)
    world.bus.publish_state(MpsState(daemons=(daemon_of(gpu_uuid(0)),)), source="test")
    async with world.running(60):
        assert "release" in host.done
        assert "did not quit" in world.detail(UNDER_WAY)
        assert not any(one.startswith("unload") for one in host.done)
        world.bus.publish_state(MpsState(), source="test")
        await anyio.sleep(LONG)
        assert world.upgrade.ending is UpgradeEnding.DONE


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


async def test_a_pod_that_is_not_asked_to_leave_is_waited_for(clock: FakeClock) -> None:
    """A DaemonSet's pod until what has it is paused; without an API server any pod, before others are paused."""
    host = Host()
    world = World(clock, host)
    world.pods.seen = BoundPod(pod=POD, version="7", controller="DaemonSet")
    world.bus.publish_state(HELD, source="test")
    async with world.running(LONG):
        assert (world.upgrade.phase, world.pods.asked) == (UpgradePhase.PAUSE, [])
        assert "keep the DaemonSet from the node" in world.detail(UPGRADE_DRAINING)
    lonely = World(clock, Host(), has_cluster=False)
    lonely.bus.publish_state(HELD, source="test")
    async with lonely.running(LONG):
        assert (lonely.upgrade.phase, lonely.host.done) == (UpgradePhase.DRAIN, [])
        assert "there is no API server that could ask it to leave" in lonely.detail(UPGRADE_DRAINING)
        lonely.bus.publish_state(AllocationTable(), source="test")
        await anyio.sleep(LONG)
        assert lonely.upgrade.ending is UpgradeEnding.DONE
