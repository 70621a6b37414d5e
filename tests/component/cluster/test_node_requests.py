"""What labels and settings ask for: wishes as a state, labels of pods, on virtual time."""

import pytest

from nodeagent.config.schema import Settings
from nodeagent.config.sections.cluster import MetricsSettings
from nodeagent.model.cluster import ClusterNode, NodeRequests, PodLabels, PodLabelTable
from nodeagent.model.driver import DriverPhase, DriverState
from nodeagent.model.events import NodeRequestRefused
from tests.component.cluster.harness import GONE, READY, Stage, settle
from tests.support.virtual_time import FakeClock

pytestmark = pytest.mark.virtual_time

RELEASED = DriverState(phase=DriverPhase.RELEASED, detail="paused")
PAUSE = {"nvidia.com/gpu.deploy.device-plugin": "paused-for-driver-upgrade"}


async def test_what_the_labels_ask_for_is_a_state(clock: FakeClock) -> None:
    """Published when it changes, and only then; the node that asks is its cause."""
    stage = Stage(clock)
    async with stage.running():
        await settle(1)
        before = stage.bus.latest(NodeRequests)
        assert before is not None
        assert before.value == NodeRequests()
        stage.api.become(labels={"team": "blue"})
        await settle(1)
        assert stage.bus.latest(NodeRequests) is before
        stage.api.become(labels={"nvidia.com/mig.config": "all-disabled"})
        await settle(1)
        after, node = stage.bus.latest(NodeRequests), stage.bus.latest(ClusterNode)
        assert after is not None
        assert node is not None
        assert (after.value.mig_config, after.cause) == ("all-disabled", node.seq)


async def test_a_pause_that_is_honoured_is_the_nodes_condition(clock: FakeClock) -> None:
    """While the handles are released for a label, the condition names it; released by a person it does not."""
    async with Stage(clock).running() as stage:
        stage.be_ready()
        stage.api.become(labels=PAUSE)
        await settle(10)
        assert stage.api.node.condition is not None
        assert stage.api.node.condition.status == "True", "nothing is released yet"
        stage.say(RELEASED)
        await settle(10)
        assert stage.api.node.condition.reason == "Paused"
        stage.api.become(labels={})
        await settle(10)
        assert stage.api.node.condition.reason == "DriverReleased"
        stage.say(READY)
        await settle(10)
        assert stage.api.node.condition.status == "True"


@pytest.mark.parametrize("events", [True, False])
async def test_a_wish_that_is_refused_is_an_event(clock: FakeClock, *, events: bool) -> None:
    """Unless the settings want none."""
    async with Stage(clock, events=events).running() as stage:
        stage.bus.publish_fact(
            NodeRequestRefused(label="nvidia.com/mig.config", value="all-x", reason="why"), source="test"
        )
        await settle(1)
        told = [(event.reason, event.note) for event, _ in stage.api.events]
        assert told == ([("MIGConfigNotApplied", "why")] if events else [])


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
