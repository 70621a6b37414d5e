"""What the cluster wishes is done, or it is said why not, on virtual time."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import anyio
import pytest
from msgspec.structs import replace

from nodeagent.components.node_requests.component import NodeRequestHandler
from nodeagent.config.live import LiveSettings
from nodeagent.config.schema import Settings
from nodeagent.config.sections.mig import MigSettings
from nodeagent.config.sections.plugin import DevicePluginSettings
from nodeagent.core.channels.bus import Bus
from nodeagent.core.conditions import Conditions
from nodeagent.core.life.orders import OrderHandlers
from nodeagent.model.cluster import ClusterNode, NodeRequests
from nodeagent.model.conditions import CATALOGUE
from nodeagent.model.driver import DriverPhase, DriverState
from nodeagent.model.errors import ControlRefused
from nodeagent.model.events import NodeRequestRefused
from nodeagent.model.orders import RELEASE, RESUME, ReleaseCommand
from tests.support.gpus import make_gpu, make_inventory
from tests.support.virtual_time import FakeClock

pytestmark = pytest.mark.virtual_time

READY = DriverState(phase=DriverPhase.READY)
STUCK = DriverState(phase=DriverPhase.STUCK, detail="nvmlInit")
PAUSE = "nvidia.com/gpu.deploy.device-plugin=paused-for-driver-upgrade"


class FakeControl:
    """Does as told and remembers it; refuses while `refusal` is set."""

    def __init__(self) -> None:
        self.done: list[str] = []
        self.refusal: ControlRefused | None = None
        self.orders = OrderHandlers()
        self.orders.add(RELEASE, self.release)
        self.orders.add(RESUME, lambda _: self.resume())

    async def release(self, command: ReleaseCommand) -> str:
        if self.refusal is not None:
            raise self.refusal
        self.done.append(f"release {command.reason}")
        return ""

    async def resume(self) -> str:
        self.done.append("resume")
        return ""

    async def follow_label(self, label: str, *, cause: int | None = None) -> str:
        if self.refusal is not None or label not in ("", "plain", "shared"):
            raise self.refusal or ControlRefused(f"no configuration {label}")
        self.done.append(f"use {label}")
        return ""


class Stage:
    """The component with a bus on which somebody wishes."""

    def __init__(self, clock: FakeClock, *, named: bool = False) -> None:
        self.bus = Bus(clock)
        self.conditions = Conditions(self.bus, clock, CATALOGUE)
        plugin = DevicePluginSettings(config_dir=Path("/configs") if named else None)
        self.live = LiveSettings(Settings(device_plugin=plugin))
        self.control = FakeControl()
        self.refused: list[NodeRequestRefused] = []
        self._node = ClusterNode(name="node-1", uid="uid-1")

    @asynccontextmanager
    async def running(self) -> AsyncIterator["Stage"]:
        requests = NodeRequestHandler(self.bus, self.conditions, self.live, self.control.orders, self.control)
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(self._listen)
            await tasks.start(lambda *, task_status: requests.run(task_status=task_status))
            yield self
            tasks.cancel_scope.cancel()

    async def _listen(self) -> None:
        with self.bus.listen(NodeRequestRefused, client="test") as facts:
            async for fact in facts:
                self.refused.append(fact.value)

    async def request(self, *, seconds: float = 10, **fields: Any) -> None:
        self.bus.publish_state(NodeRequests(**fields), source="test")
        await anyio.sleep(seconds)

    async def change_node(self, **labels: str) -> None:
        self._node = replace(self._node, labels=labels)
        self.bus.publish_state(self._node, source="test")
        await anyio.sleep(10)

    def codes(self) -> set[str]:
        return {each.code for each in self.conditions.all_set()}


async def test_a_pause_releases_for_as_long_as_it_stands(clock: FakeClock) -> None:
    """Released at once, again before the release would end, and taken back with the label."""
    async with Stage(clock).running() as stage:
        await stage.request(seconds=1)
        assert stage.control.done == []
        await stage.request(pause=PAUSE, seconds=1)
        assert stage.control.done == [f"release {PAUSE}"]
        assert "node-paused" in stage.codes()
        await anyio.sleep(900)
        assert len(stage.control.done) > 2
        await stage.request()
        assert stage.control.done[-1] == "resume"
        assert "node-paused" not in stage.codes()


async def test_a_pause_that_cannot_be_honoured_is_tried_again(clock: FakeClock) -> None:
    """While the release is refused the node is not said to be paused."""
    stage = Stage(clock)
    stage.control.refusal = ControlRefused("busy")
    async with stage.running():
        await stage.request(pause=PAUSE)
        assert "node-paused" not in stage.codes()
        stage.control.refusal = None
        await anyio.sleep(10)
        assert "node-paused" in stage.codes()


async def test_the_label_chooses_the_configuration(clock: FakeClock) -> None:
    """Switched when the label changes, and only then."""
    async with Stage(clock, named=True).running() as stage:
        await stage.change_node()
        assert stage.control.done == [], "no wish is known yet"
        await stage.request(configuration="plain", seconds=0.1)
        await stage.request(configuration="shared", seconds=1)
        await stage.request(configuration="shared", pause="")
        await stage.change_node(team="blue")
        assert stage.control.done == ["use plain", "use shared"]


async def test_the_first_wish_counts_whatever_the_agent_started_with(clock: FakeClock) -> None:
    """A label that was taken away while no agent ran is no longer followed, and what was said of it is over."""
    stage = Stage(clock, named=True)
    stage.conditions.set("named-configuration-unknown", detail="the label of the last life")
    async with stage.running():
        await stage.request(configuration="")
        assert stage.control.done == ["use "]
        assert stage.codes() == set()


async def test_an_unknown_configuration_changes_nothing(clock: FakeClock) -> None:
    """The present one stays, and it is said once; a node that changes is a reason to try again."""
    async with Stage(clock, named=True).running() as stage:
        await stage.request(configuration="plain")
        await stage.request(configuration="typo")
        await stage.change_node(team="blue")
        assert stage.control.done == ["use plain"]
        assert "named-configuration-unknown" in stage.codes()
        reason = "no configuration typo"
        assert stage.refused == [
            NodeRequestRefused(label="nvidia.com/device-plugin.config", value="typo", reason=reason)
        ]
        await stage.request(configuration="plain")
        assert "named-configuration-unknown" not in stage.codes()


async def test_without_a_directory_the_label_means_nothing(clock: FakeClock) -> None:
    """A cluster that uses the label for something else is left to it."""
    async with Stage(clock).running() as stage:
        await stage.request(configuration="plain")
        assert stage.control.done == []


async def test_a_mig_configuration_that_is_not_there_is_said(clock: FakeClock) -> None:
    """The condition and one fact name what is asked for; they follow the manager's word and go with the wish."""
    async with Stage(clock).running() as stage:
        stage.bus.publish_state(make_inventory([make_gpu(0, mig=["1g.10gb"])]), source="test")
        stage.bus.publish_state(STUCK, source="test")
        await stage.request(mig_config="all-disabled")
        assert stage.codes() == set(), "nobody can ask the GPUs now"
        stage.bus.publish_state(READY, source="test")
        await anyio.sleep(10)
        assert stage.codes() == {"mig-config-not-applied"}
        await stage.request(mig_config="all-disabled", pause="")
        stage.bus.publish_state(make_inventory([make_gpu(0, mig=["1g.10gb"]), make_gpu(1)]), source="test")
        await anyio.sleep(1)
        assert [(one.label, one.value) for one in stage.refused] == [("nvidia.com/mig.config", "all-disabled")]
        assert "GPU 0 is not cut as all-disabled asks" in stage.refused[0].reason
        await stage.request(mig_config="all-disabled", mig_state="pending")
        assert stage.codes() == {"mig-config-changing"}
        stage.bus.publish_state(make_inventory([make_gpu(0)]), source="test")
        await stage.request(mig_config="all-disabled", mig_state="success")
        assert stage.codes() == set()
        assert len(stage.refused) == 1


async def test_a_mig_wish_goes_while_nobody_can_ask_the_gpus(clock: FakeClock) -> None:
    """A driver that is away holds up what needs the GPUs, not what the labels say by themselves."""
    async with Stage(clock).running() as stage:
        stage.bus.publish_state(make_inventory([make_gpu(0, mig=["1g.10gb"])]), source="test")
        stage.bus.publish_state(READY, source="test")
        await stage.request(mig_config="all-disabled")
        stage.bus.publish_state(STUCK, source="test")
        await stage.request(mig_config="all-disabled", pause=PAUSE)
        assert "mig-config-not-applied" in stage.codes(), "nothing is known to be otherwise"
        await stage.request(mig_config="all-disabled", mig_state="pending")
        assert stage.codes() == {"mig-config-changing"}
        await stage.request(mig_config="all-disabled", mig_state="success")
        assert stage.codes() == set()
        await stage.request(mig_config="all-disabled", mig_state="failed")
        assert stage.codes() == {"mig-config-not-applied"}
        await stage.request()
        assert stage.codes() == set()


async def test_a_mig_configuration_is_left_to_the_part_that_cuts_gpus(clock: FakeClock) -> None:
    """Two that tell of one wish would contradict each other."""
    stage = Stage(clock)
    stage.live.replace(replace(stage.live.now, mig=MigSettings(manage=True)))
    async with stage.running():
        stage.bus.publish_state(DriverState(phase=DriverPhase.READY), source="test")
        stage.bus.publish_state(make_inventory([make_gpu(0, mig=["1g.10gb"])]), source="test")
        await stage.request(mig_config="all-disabled")
        assert (stage.codes(), stage.refused) == (set(), [])
