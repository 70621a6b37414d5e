"""What labels and settings ask for: pauses, configurations, MIG layouts, labels of pods, on virtual time."""

import pytest

from nodeagent.config.schema import Settings
from nodeagent.config.sections.cluster import MetricsSettings
from nodeagent.model.cluster import PodLabels, PodLabelTable
from nodeagent.model.errors import ControlRefused
from tests.component.cluster.harness import GONE, READY, STUCK, Stage, settle
from tests.support.gpus import make_gpu, make_inventory
from tests.support.virtual_time import FakeClock

pytestmark = pytest.mark.virtual_time

PAUSE = {"nvidia.com/gpu.deploy.device-plugin": "paused-for-driver-upgrade"}
CONFIG = "nvidia.com/device-plugin.config"
MIG = "nvidia.com/mig.config"


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
