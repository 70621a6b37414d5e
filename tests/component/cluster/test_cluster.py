"""The cluster component between the bus and a node in a cluster, on virtual time."""

from collections.abc import AsyncGenerator, AsyncIterator, MutableMapping
from contextlib import asynccontextmanager
from pathlib import Path
from random import Random
from typing import Any

import anyio
import pytest

from nodeagent.components.cluster.component import Cluster
from nodeagent.components.cluster.status import TERMINAL_ANNOTATION
from nodeagent.config.live import LiveSettings
from nodeagent.config.schema import Settings
from nodeagent.config.sections.cluster import KubernetesSettings, MetricsSettings
from nodeagent.config.sections.plugin import DevicePluginSettings
from nodeagent.kernel.bus import Bus
from nodeagent.kernel.conditions import Conditions
from nodeagent.model.cluster import ClusterLink, ClusterNode, PodLabels, PodLabelTable, Taint
from nodeagent.model.conditions import CATALOGUE
from nodeagent.model.driver import DriverPhase, DriverState
from nodeagent.model.errors import ControlRefused, NodeagentError
from nodeagent.model.events import GpuVanished
from tests.fakes.node_api import FakeNodeApi
from tests.support.gpus import gpu_uuid, make_gpu, make_inventory
from tests.support.virtual_time import FakeClock

pytestmark = [pytest.mark.anyio, pytest.mark.virtual_time]

READY = DriverState(phase=DriverPhase.READY)
STUCK = DriverState(phase=DriverPhase.STUCK, detail="nvmlInit")
PAUSE = {"nvidia.com/gpu.deploy.device-plugin": "paused-for-driver-upgrade"}
GONE = NodeagentError("the server does not answer")


class FakeControl:
    """Does as told and remembers it; refuses while `refusal` is set."""

    def __init__(self) -> None:
        self.done: list[str] = []
        self.refusal: ControlRefused | None = None

    async def reload(self) -> str:
        raise AssertionError("nobody asked for a reload")

    async def inject_fault(self, fault: str, arguments: object) -> str:
        raise AssertionError("nobody asked for a fault")

    async def crash_component(self, name: str, reason: str) -> str:
        raise AssertionError("nobody asked for a crash")

    async def clear_gpu(self, name: str, reason: str, who: str) -> str:
        raise AssertionError("nobody asked for a GPU to be cleared")

    async def release(self, reason: str, seconds: float | None) -> str:
        if self.refusal is not None:
            raise self.refusal
        self.done.append(f"release {reason}")
        return ""

    async def resume(self) -> str:
        self.done.append("resume")
        return ""

    async def follow_label(self, label: str, *, cause: int | None = None) -> str:
        if self.refusal is not None or label not in ("", "plain", "shared"):
            raise self.refusal or ControlRefused(f"no configuration {label}")
        self.done.append(f"use {label}")
        return ""


class FakePods:
    """Tells one table after the other; breaks when the next one is an error."""

    def __init__(self) -> None:
        self.following = 0
        self.tables: list[PodLabelTable | NodeagentError] = []

    async def follow_pods(self) -> AsyncGenerator[PodLabelTable, None]:
        self.following += 1
        try:
            while self.tables:
                table = self.tables.pop(0)
                if isinstance(table, NodeagentError):
                    raise table
                yield table
            await anyio.sleep_forever()
        finally:
            self.following -= 1


class Stage:
    """The component with everything round it."""

    def __init__(self, clock: FakeClock, *, named: bool = False, **kubernetes: Any) -> None:
        self.bus = Bus(clock)
        self.conditions = Conditions(self.bus, clock, CATALOGUE)
        plugin = DevicePluginSettings(config_dir=Path("/configs") if named else None)
        self.live = LiveSettings(Settings(kubernetes=KubernetesSettings(**kubernetes), device_plugin=plugin))
        self.api, self.pods, self.control = FakeNodeApi(), FakePods(), FakeControl()
        self._clock = clock

    @asynccontextmanager
    async def running(self) -> AsyncIterator["Stage"]:
        cluster = Cluster(
            self.bus,
            self.conditions,
            self._clock,
            self.live,
            self.api,
            self.control,
            self.control,
            pods=self.pods,
            rng=Random(1),
        )
        async with anyio.create_task_group() as tasks:
            await tasks.start(lambda *, task_status: cluster.run(task_status=task_status))
            yield self
            tasks.cancel_scope.cancel()

    def say(self, *states: object) -> None:
        for state in states:
            self.bus.publish_state(state, source="test")

    def codes(self) -> set[str]:
        return {each.code for each in self.conditions.all_set()}

    def be_ready(self) -> None:
        self.say(READY, make_inventory([make_gpu(0), make_gpu(1)]))


async def settle(seconds: float = 0.1) -> None:
    await anyio.sleep(seconds)


async def test_the_condition_is_written_once(clock: FakeClock) -> None:
    """It says ready, and an hour without news writes nothing."""
    async with Stage(clock).running() as stage:
        stage.be_ready()
        await settle(3600)
        assert stage.api.node.condition is not None
        assert stage.api.node.condition.status == "True"
        assert stage.api.writes == ["condition changed"]
        stage.say(make_inventory([make_gpu(0)]))
        await settle()
        assert stage.api.writes == ["condition changed", "condition same"]


async def test_the_condition_can_be_switched_off(clock: FakeClock) -> None:
    """Nothing is written where nobody wants it."""
    async with Stage(clock, node_condition=False).running() as stage:
        stage.be_ready()
        await settle(60)
        assert stage.api.writes == []


async def test_an_outage_is_said_survived_and_caught_up(clock: FakeClock) -> None:
    """For hours nothing is written and nothing lost; back again, the node is brought up to date within the jitter."""
    async with Stage(clock, catch_up_max_seconds=30).running() as stage:
        stage.say(READY)
        await settle()
        stage.api.go_away(GONE)
        await settle(1)
        assert "api-unreachable" in stage.codes()
        link = stage.bus.latest(ClusterLink)
        assert link is not None
        assert not link.value.reachable
        stage.be_ready()
        await settle(4 * 3600)
        before = list(stage.api.writes)
        stage.api.trouble = None
        await settle(100)
        assert stage.api.writes == [*before, "condition changed"]
        assert "api-unreachable" not in stage.codes()


async def test_a_cluster_that_never_answers_harms_nothing(clock: FakeClock) -> None:
    """Away from the first second on: the component runs, tries and says so."""
    stage = Stage(clock)
    stage.api.trouble = GONE
    async with stage.running():
        stage.be_ready()
        await settle(3600)
        assert "api-unreachable" in stage.codes()
        assert stage.bus.latest(ClusterNode) is None


async def test_what_is_refused_is_said_and_tried_again(clock: FakeClock) -> None:
    """A missing right is a condition that goes when the right comes."""
    stage = Stage(clock)
    stage.api.write_trouble = NodeagentError("forbidden")
    async with stage.running():
        stage.be_ready()
        await settle(1)
        assert "node-not-updated" in stage.codes()
        stage.api.write_trouble = None
        await settle(120)
        assert "node-not-updated" not in stage.codes()
        assert stage.api.writes == ["condition changed"]


async def test_the_startup_taint_goes_and_may_come_back(clock: FakeClock) -> None:
    """Off when ready; on again when no longer ready, where that is asked for."""
    taint = Taint(key="nvidia.com/starting", effect="NoSchedule")
    stage = Stage(clock, startup_taint="nvidia.com/starting:NoSchedule", taint_again=True)
    stage.api.become(taints=(taint,))
    async with stage.running():
        stage.say(DriverState(phase=DriverPhase.NOT_LOADED))
        await settle(60)
        seen = [stage.api.node.taints]
        for state in (READY, STUCK):
            stage.say(state, make_inventory([make_gpu(0)]))
            await settle(10)
            seen.append(stage.api.node.taints)
        assert seen == [(taint,), (), (taint,)]


async def test_a_node_that_stays_stuck_is_given_up_and_taken_back(clock: FakeClock) -> None:
    """After the attempts allowed: reason, annotation and condition; all gone once it works."""
    async with Stage(clock, terminal_after_attempts=5).running() as stage:
        stage.say(STUCK)
        await settle(140)
        assert TERMINAL_ANNOTATION not in stage.api.node.annotations
        await settle(20)
        assert stage.api.node.annotations[TERMINAL_ANNOTATION] == "DriverStuck after 5 attempts: nvmlInit"
        assert stage.api.node.condition is not None
        assert stage.api.node.condition.reason == "GPUsFailedForGood"
        assert "node-lost-for-good" in stage.codes()
        stage.be_ready()
        await settle(10)
        assert TERMINAL_ANNOTATION not in stage.api.node.annotations
        assert "node-lost-for-good" not in stage.codes()


async def test_a_pause_releases_for_as_long_as_it_stands(clock: FakeClock) -> None:
    """Released at once, again before the release would end, and taken back with the label."""
    async with Stage(clock).running() as stage:
        stage.be_ready()
        await settle()
        assert stage.control.done == []
        stage.api.become(labels=PAUSE)
        await settle(1)
        assert len(stage.control.done) == 1
        assert "node-paused" in stage.codes()
        await settle(900)
        assert len(stage.control.done) > 2
        assert stage.api.node.condition is not None
        assert stage.api.node.condition.reason == "Paused"
        stage.api.become(labels={})
        await settle(10)
        assert stage.control.done[-1] == "resume"
        assert stage.api.node.condition.status == "True"
        assert "node-paused" not in stage.codes()


async def test_a_pause_that_cannot_be_honoured_is_tried_again(clock: FakeClock) -> None:
    """While the release is refused the node is not said to be paused."""
    stage = Stage(clock)
    stage.control.refusal = ControlRefused("busy")
    stage.api.become(labels=PAUSE)
    async with stage.running():
        await settle(10)
        assert "node-paused" not in stage.codes()
        stage.control.refusal = None
        await settle(10)
        assert "node-paused" in stage.codes()


async def test_events_wait_for_the_server(clock: FakeClock) -> None:
    """What happened during an outage is told after it, counted; what is refused is not told twice."""
    stage = Stage(clock, catch_up_max_seconds=0)
    stage.api.trouble = GONE
    async with stage.running():
        await settle(10)
        stage.bus.publish_fact(GpuVanished(gpu=gpu_uuid(1), generation=2), source="test")
        await settle(100)
        assert stage.api.events == []
        stage.api.trouble = None
        await settle(100)
        assert [(event.reason, count) for event, count in stage.api.events] == [("GPULost", 1)]
        stage.api.write_trouble = NodeagentError("forbidden")
        stage.bus.publish_fact(GpuVanished(gpu=gpu_uuid(2), generation=2), source="test")
        await settle(100)
        assert len(stage.api.events) == 1


async def test_events_can_be_switched_off(clock: FakeClock) -> None:
    """Nothing is told where nobody wants it."""
    async with Stage(clock, events=False).running() as stage:
        await settle()
        stage.bus.publish_fact(GpuVanished(gpu=gpu_uuid(1), generation=2), source="test")
        await settle(60)
        assert stage.api.events == []


CONFIG = "nvidia.com/device-plugin.config"


async def test_the_label_chooses_the_configuration(clock: FakeClock) -> None:
    """Switched when the label changes, within two seconds, and only then."""
    stage = Stage(clock, named=True)
    stage.api.become(labels={CONFIG: "plain"})
    async with stage.running():
        await settle()
        stage.api.become(labels={CONFIG: "shared"})
        await settle(1)
        stage.api.become(labels={CONFIG: "shared", "team": "blue"})
        await settle(60)
        assert stage.control.done == ["use plain", "use shared"]


async def test_an_unknown_configuration_changes_nothing(clock: FakeClock) -> None:
    """The present one stays, and people are told where they look; it is over with the right name."""
    stage = Stage(clock, named=True)
    stage.api.become(labels={CONFIG: "plain"})
    async with stage.running():
        await settle()
        stage.api.become(labels={CONFIG: "typo"})
        await settle(1)
        stage.api.become(labels={CONFIG: "typo", "team": "blue"})
        await settle(10)
        assert stage.control.done == ["use plain"]
        assert "named-configuration-unknown" in stage.codes()
        assert [event.reason for event, _ in stage.api.events] == ["NamedConfigurationRefused"]
        stage.api.become(labels={CONFIG: "plain"})
        await settle(10)
        assert "named-configuration-unknown" not in stage.codes()


async def test_a_configuration_that_is_refused_is_said(clock: FakeClock) -> None:
    """A directory that cannot be read is no reason to fall over, with events or without."""
    stage = Stage(clock, named=True, events=False)
    stage.control.refusal = ControlRefused("no such directory")
    stage.api.become(labels={CONFIG: "plain"})
    async with stage.running():
        await settle(10)
        assert "named-configuration-unknown" in stage.codes()
        assert stage.control.done == []


async def test_without_a_directory_the_label_means_nothing(clock: FakeClock) -> None:
    """A cluster that uses the label for something else is left to it."""
    stage = Stage(clock)
    stage.api.become(labels={CONFIG: "plain"})
    async with stage.running():
        await settle(10)
        assert stage.control.done == []


MIG = "nvidia.com/mig.config"


async def test_a_mig_configuration_that_is_not_there_is_said(clock: FakeClock) -> None:
    """The condition and one event name what is asked for; they follow the manager's word and go with the wish."""
    stage = Stage(clock)
    stage.api.become(labels={MIG: "all-disabled"})
    async with stage.running():
        stage.say(STUCK, make_inventory([make_gpu(0, mig=["1g.10gb"])]))
        await settle(10)
        assert not {each for each in stage.codes() if each.startswith("mig-config")}, "nobody can ask the GPUs now"
        stage.say(READY)
        await settle(10)
        assert "mig-config-not-applied" in stage.codes()
        assert [event.reason for event, _ in stage.api.events] == ["MIGConfigNotApplied"]
        assert "GPU 0 is not cut as all-disabled asks" in stage.api.events[0][0].note
        stage.api.become(labels={MIG: "all-disabled", f"{MIG}.state": "pending"})
        await settle(10)
        assert {each for each in stage.codes() if each.startswith("mig-config")} == {"mig-config-changing"}
        stage.say(make_inventory([make_gpu(0)]))
        stage.api.become(labels={MIG: "all-disabled", f"{MIG}.state": "success"})
        await settle(10)
        assert not {each for each in stage.codes() if each.startswith("mig-config")}
        assert len(stage.api.events) == 1
        assert MIG not in "".join(stage.api.writes), "the labels are the manager's"


async def test_labels_of_pods_are_followed_while_they_are_wanted(clock: FakeClock) -> None:
    """Nothing is asked by default; what breaks is said and begun anew, what is known stays; switched off, it goes."""
    stage = Stage(clock)
    first = PodLabelTable(pods=(PodLabels(namespace="ml", pod="a", uid="1", labels={"team": "blue"}),))
    stage.pods.tables = [first, *[GONE] * 9]
    async with stage.running():
        await settle(60)
        assert len(stage.pods.tables) == 10
        stage.live.replace(Settings(metrics=MetricsSettings(pod_labels=True)))
        await settle(15)
        told = stage.bus.latest(PodLabelTable)
        assert told is not None
        assert told.value == first
        assert "pod-labels-unknown" in stage.codes()
        stage.pods.tables = [PodLabelTable()]
        await settle(120)
        assert stage.pods.following == 1
        assert "pod-labels-unknown" not in stage.codes()
        stage.live.replace(Settings())
        await settle(20)
        assert stage.bus.latest(PodLabelTable) is None
        assert stage.pods.following == 0


async def test_another_reason_for_an_outage_is_logged_again(
    clock: FakeClock, log_lines: list[MutableMapping[str, Any]]
) -> None:
    """A server that comes back and refuses is another matter than one that is away."""

    class Refused(NodeagentError):
        pass

    async with Stage(clock).running() as stage:
        stage.api.go_away(GONE)
        await settle(30)
        stage.api.trouble = Refused("no token")
        await settle(120)
        assert [each["reason"] for each in log_lines if each["event"] == "api_server_away"] == [str(GONE), "no token"]
