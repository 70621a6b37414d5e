"""The labeler between the bus and its sinks, on virtual time."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest
from msgspec.structs import replace

from nodeagent.config.schema import Settings
from nodeagent.config.sections.cluster import LabelsSettings
from nodeagent.config.sections.sharing import SharedResource, SharingSettings, TimeSlicing
from nodeagent.core.channels.subscription import Listen
from nodeagent.model.cluster import ClusterLink, ClusterNode
from nodeagent.model.driver import DriverPhase, DriverState
from nodeagent.model.errors import NodeagentError
from nodeagent.model.events import ConfigurationReloaded, LabelsContested
from nodeagent.model.gpu import Inventory
from nodeagent.model.health import Verdict
from nodeagent.model.labels import LabelState
from tests.component.labeler.harness import AWAY, COUNT, HEALTHY, PRESENT, READY, P, Stage, judge, settle
from tests.support.gpus import make_gpu, make_inventory
from tests.support.virtual_time import FakeClock

pytestmark = pytest.mark.virtual_time


async def test_the_node_is_labelled_and_then_left_alone(clock: FakeClock) -> None:
    """One patch brings it up to date; in an hour of nothing new there is no other."""
    async with Stage(clock, "node").running() as stage:
        stage.say(READY, make_inventory([make_gpu(0), make_gpu(1)]))
        stage.reach()
        await settle()
        assert stage.api.node.labels[COUNT] == "2"
        stage.reach()
        await settle(3600)
        assert stage.api.writes == ["labels"]
        assert stage.state.wanted == stage.state.applied
        assert stage.state.last_error == ""


async def test_nothing_is_said_before_something_is_known(clock: FakeClock) -> None:
    """Without a word on the driver, or with a ready one whose GPUs are not counted yet, no label moves."""
    async with Stage(clock, "node").running() as stage:
        stage.reach()
        await settle(10)
        stage.say(READY)
        await settle(10)
        assert stage.api.writes == []


async def test_without_an_api_server_the_labels_wait(clock: FakeClock) -> None:
    async with Stage(clock, "node").running() as stage:
        stage.say(READY, make_inventory([make_gpu(0)]))
        stage.reach(reachable=False)
        await settle(3600)
        stage.say(make_inventory([make_gpu(0), make_gpu(1)]))
        await settle()
        assert stage.api.writes == []
        stage.reach()
        await settle()
        assert stage.api.node.labels[COUNT] == "2"


async def test_a_change_is_held_back_and_comes_in_time(clock: FakeClock) -> None:
    """Health may flap: a return waits for the hold time, and two seconds at most after. A loss and capacity do not."""
    async with Stage(clock, "node").running() as stage:
        stage.say(READY, make_inventory([make_gpu(0), make_gpu(1)]), judge(Verdict.HEALTHY, Verdict.HEALTHY))
        stage.reach()
        await settle()
        stage.reach()
        stage.say(judge(Verdict.HEALTHY, Verdict.UNHEALTHY))
        await settle()
        assert stage.api.node.labels[HEALTHY] == "1"
        stage.reach()
        stage.say(judge(Verdict.HEALTHY, Verdict.HEALTHY))
        await settle(9.5)
        assert stage.api.node.labels[HEALTHY] == "1"
        assert stage.state.held_back == {HEALTHY: "2", f"{P}gpu.unhealthy.count": "0"}
        await settle(2.5)
        assert stage.api.node.labels[HEALTHY] == "2"
        assert stage.state.held_back == {}
        stage.reach()
        stage.say(make_inventory([make_gpu(0)]))
        await settle()
        assert stage.api.node.labels[COUNT] == "1"


async def test_labels_survive_the_driver_and_the_agent(clock: FakeClock) -> None:
    """What an earlier life said about GPUs stays while nobody can ask them, in every sink; presence is said at once."""
    stage = Stage(clock, "node", "nfd_file", timestamp=False)
    stage.file.text = f"{COUNT}=8\n"
    stage.api.node = replace(stage.api.node, labels={COUNT: "8", "team": "blue"}, owned_labels=(COUNT,))
    async with stage.running():
        stage.say(AWAY)
        stage.reach()
        await settle()
        assert stage.api.node.labels == {COUNT: "8", "team": "blue", PRESENT: "true"} | {
            key: "true" for key in stage.api.node.labels if "pci-" in key
        }
        assert stage.file.text == f"{COUNT}=8\n{PRESENT}=true\n"
        stage.reach()
        stage.say(READY, make_inventory([make_gpu(0)]))
        await settle()
        assert stage.api.node.labels[COUNT] == "1"
        stage.reach()
        stage.say(AWAY)
        await settle(60)
        assert stage.api.node.labels[COUNT] == "1"
        stage.say(DriverState(phase=DriverPhase.NO_HARDWARE))
        await settle(60)
        assert COUNT not in stage.file.text


@asynccontextmanager
async def contest(clock: FakeClock) -> AsyncIterator[tuple[Stage, Listen[LabelsContested]]]:
    """Somebody else says another count of GPUs, and what the agent tells of that."""
    stage = Stage(clock, "node")
    stage.api.node = replace(stage.api.node, labels={COUNT: "7"})
    async with stage.running():
        with stage.bus.listen(LabelsContested, client="test") as conflicts:
            stage.say(READY, make_inventory([make_gpu(0)]))
            stage.reach()
            await settle(20)
            yield stage, conflicts


async def test_a_contested_label_is_said_and_left(clock: FakeClock) -> None:
    """The condition names it with both values; every other label is written; it goes when the conflict does."""
    async with contest(clock) as (stage, conflicts):
        assert (await anext(conflicts)).value == LabelsContested(keys=(COUNT,))
        assert conflicts.take_nowait() is None, "one conflict is told once"
        assert stage.api.node.labels[COUNT] == "7"
        assert f"{P}gpu.product" in stage.api.node.labels
        assert ("labels-contested", COUNT) in stage.codes()
        stage.api.node = replace(stage.api.node, labels={f"{P}gpu.product": "x"}, owned_labels=())
        stage.reach()
        await settle()
        assert stage.api.node.labels[COUNT] == "1"
        assert ("labels-contested", COUNT) not in stage.codes()


async def test_labels_that_are_wanted_no_more_are_contested_no_more(clock: FakeClock) -> None:
    """Once nothing is wanted on the node, what others say there is their business; wanted again, it is told again."""
    async with contest(clock) as (stage, conflicts):
        assert ("labels-contested", COUNT) in stage.codes()
        stage.live.replace(Settings(labels=LabelsSettings(sinks=("nfd_file",))))
        stage.reach()
        await settle(20)
        assert ("labels-contested", COUNT) not in stage.codes()
        stage.live.replace(Settings(labels=LabelsSettings(sinks=("node",))))
        stage.reach()
        await settle(20)
        assert ("labels-contested", COUNT) in stage.codes()
        assert [(await anext(conflicts)).value.keys for _ in range(2)] == [(COUNT,)] * 2


async def test_what_cannot_be_written_is_said_and_tried_again(clock: FakeClock) -> None:
    """The other sinks are served, the reason is on the state and a condition, and both go once it works."""
    async with Stage(clock, "node", "nfd_file", "stdout").running() as stage:
        stage.api.write_trouble = NodeagentError("no right to patch")
        stage.say(READY, make_inventory([make_gpu(0)]))
        stage.reach()
        await settle()
        assert f"{COUNT}=1\n" in stage.file.text
        assert stage.state.last_error == "no right to patch"
        assert ("labels-not-written", "node") in stage.codes()
        stage.api.write_trouble = None
        await settle(10)
        assert stage.api.node.labels[COUNT] == "1"
        assert ("labels-not-written", "node") not in stage.codes()
        assert len(stage.printed) == 1
        assert f"{COUNT}=1\n" in stage.printed[0]


async def test_the_file_is_put_back_when_somebody_takes_it(clock: FakeClock) -> None:
    """Once a minute it is read; what is not as written is written again."""
    async with Stage(clock, "nfd_file").running() as stage:
        stage.say(READY, make_inventory([make_gpu(0)]))
        await settle()
        assert stage.file.writes == 1
        assert stage.state.wanted == stage.state.applied
        stage.file.text = ""
        await settle(70)
        assert stage.file.writes == 2
        stage.file.trouble = NodeagentError("disk full")
        stage.file.text = ""
        await settle(70)
        assert stage.state.last_error == "disk full"


async def test_facts_that_cannot_be_read_leave_the_last_ones(clock: FakeClock) -> None:
    """Before there were any, nothing is labelled; afterwards nothing is taken off."""
    stage = Stage(clock, "stdout")
    facts, stage.facts.facts = stage.facts.facts, NodeagentError("sysfs hangs")
    async with stage.running():
        stage.say(READY, make_inventory([make_gpu(0)]))
        await settle(10)
        assert stage.printed == []
        stage.facts.facts = facts
        await settle(10)
        stage.facts.facts = NodeagentError("sysfs hangs")
        await settle(200)
        assert len(stage.printed) == 1


async def test_settings_count_from_the_next_look(clock: FakeClock) -> None:
    """A reload that adds a sink, or one that cannot be reached, shows within seconds."""
    async with Stage(clock).running() as stage:
        stage.say(READY, Inventory(generation=1, gpus=(make_gpu(0),)))
        await settle()
        assert stage.state.sink == ""
        stage.live.replace(Settings(labels=LabelsSettings(sinks=("stdout", "node_feature"))))
        await settle(10)
        assert len(stage.printed) == 1
        assert ("labels-not-written", "node_feature") in stage.codes()


async def test_a_change_of_sharing_is_told_at_once_and_whole(clock: FakeClock) -> None:
    """By the reload itself: count, sharing strategy and product change together, or pods are placed by half of it.

    Also where no count changes, and another resource name alone tells pods apart.
    """
    shared = SharedResource(name="gpu", replicas=4)
    async with Stage(clock, "stdout", hold_seconds=60).running() as stage:
        stage.say(READY, make_inventory([make_gpu(0)]))
        await settle()
        assert f"{P}gpu.replicas=1\n" in stage.printed[0]
        now = stage.live.now
        sharing = SharingSettings(timeSlicing=TimeSlicing(resources=(shared,)))
        renaming = SharingSettings(timeSlicing=TimeSlicing(resources=(shared,), renameByDefault=True))
        for section, replicas, strategy in (
            (sharing, 4, "time-slicing"),
            (renaming, 4, "time-slicing"),
            (None, 1, "none"),
        ):
            stage.live.replace(now if section is None else replace(now, sharing=section))
            reload = stage.bus.publish_fact(ConfigurationReloaded(changed=("sharing",)), source="test")
            await settle()
            assert f"{P}gpu.replicas={replicas}\n" in stage.printed[-1]
            assert f"{P}gpu.sharing-strategy={strategy}\n" in stage.printed[-1]
            assert ("-SHARED\n" in stage.printed[-1]) is (section is sharing)
            told = stage.bus.latest(LabelState)
            assert told is not None
            assert told.cause == reload.seq
        assert len(stage.printed) == 4


async def test_a_label_that_would_be_illegal_is_named(clock: FakeClock) -> None:
    """Everything else is written."""
    async with Stage(clock, "stdout").running() as stage:
        stage.say(replace(READY, driver_version="1 2"), make_inventory([make_gpu(0)]))
        await settle()
        assert ("labels-left-out", f"{P}cuda.driver.major") in stage.codes()
        assert f"{COUNT}=1\n" in stage.printed[0]


async def test_a_node_seen_twice_is_patched_once(clock: FakeClock) -> None:
    """Until the watch brings the patched node back, the same patch is not sent again."""
    async with Stage(clock, "node").running() as stage:
        stage.say(READY, make_inventory([make_gpu(0)]))
        stage.say(ClusterNode(name="node-1", uid="uid-1"), ClusterLink(reachable=True))
        await settle(60)
        assert stage.api.writes == ["labels"]


async def test_labels_go_from_places_that_are_no_longer_wanted(clock: FakeClock) -> None:
    """Also those of an earlier life; others' stay, what fails is told and tried again, then all is quiet."""
    stage = Stage(clock, "stdout")
    stage.file.text = f"{COUNT}=8\n"
    stage.file.trouble = NodeagentError("read-only")
    stage.api.node = replace(stage.api.node, labels={COUNT: "8", "team": "blue"}, owned_labels=(COUNT,))
    async with stage.running():
        stage.say(READY, make_inventory([make_gpu(0)]))
        stage.reach()
        await settle()
        assert stage.api.node.labels == {"team": "blue"}
        assert ("labels-not-written", "nfd_file") in stage.codes()
        stage.file.trouble = None
        stage.reach()
        await settle(60)
        assert stage.file.text == ""
        assert ("labels-not-written", "nfd_file") not in stage.codes()
        stage.live.replace(Settings(labels=LabelsSettings(sinks=("node", "nfd_file"))))
        await settle(20)
        assert stage.api.node.labels[COUNT] == "1"
        assert f"{COUNT}=1\n" in stage.file.text
        stage.reach()
        stage.live.replace(Settings(labels=LabelsSettings(sinks=())))
        await settle(20)
        stage.reach()
        await settle(3600)
        assert (stage.api.node.labels, stage.file.text) == ({"team": "blue"}, "")
        assert stage.api.writes == ["labels"] * 3


async def test_a_label_that_is_taken_away_again_and_again_comes_back_each_time(clock: FakeClock) -> None:
    """Also when it was whole for so short a time that the labeler never saw it so; then within two seconds."""
    async with Stage(clock, "node").running() as stage:
        stage.say(READY, make_inventory([make_gpu(0)]))
        stage.reach()
        await settle()
        whole = stage.api.node
        robbed = replace(whole, labels={key: text for key, text in whole.labels.items() if key != COUNT})
        for _ in range(3):
            stage.say(whole)
            stage.api.node = robbed
            stage.reach()
            await settle(2)
            assert COUNT in stage.api.node.labels


async def test_a_patch_on_its_way_is_not_sent_twice(clock: FakeClock) -> None:
    """The node is told of for another reason, such as its condition, before the patch comes back: no second one."""
    async with Stage(clock, "node").running() as stage:
        before = stage.api.node
        stage.say(READY, make_inventory([make_gpu(0)]))
        stage.reach()
        await settle()
        stage.say(replace(before, annotations={"nvidia.com/x": "y"}))
        await settle(0.5)
        stage.reach()
        await settle(60)
        assert stage.api.writes == ["labels"]
