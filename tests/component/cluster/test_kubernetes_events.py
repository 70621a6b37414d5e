"""What the cluster is told of this node: condition, taint and events, also after an outage, on virtual time."""

from collections.abc import MutableMapping
from typing import Any

import pytest
from msgspec.structs import replace

from nodeagent.components.cluster.component import GATHER_SECONDS, POLL_RETRY_SECONDS
from nodeagent.components.cluster.node_requests import BRAKE_TAINT_SECONDS
from nodeagent.config.sections.devices import DeviceClass, DevicesSettings
from nodeagent.config.sections.hardware import ProofSettings
from nodeagent.model.cluster import BRAKE_TAINT, TERMINAL_ANNOTATION, ClusterLink, ClusterNode, Taint
from nodeagent.model.cordons import Cordon, CordonSource
from nodeagent.model.devices import DeviceClassState, DeviceTable, HostDevice, Standing
from nodeagent.model.driver import DriverPhase, DriverState
from nodeagent.model.errors import NodeagentError
from nodeagent.model.events import ConfigurationRejected, GpuVanished
from nodeagent.model.fractions import FractionOffers
from nodeagent.model.ids import DeviceId, ResourceName
from nodeagent.model.mig import MigState
from nodeagent.model.offering import Offering
from nodeagent.model.proof import PROOF_ANNOTATION, GpuProofs
from nodeagent.rules.fractions.bound import BOUND_ANNOTATION
from nodeagent.rules.fractions.by_class import CLASSES_ANNOTATION, CLASSES_BOUND_ANNOTATION
from nodeagent.rules.fractions.published import ANNOTATION
from tests.component.cluster.harness import GONE, READY, STUCK, Stage, settle
from tests.support.fractions import make_offering
from tests.support.gpus import gpu_uuid, make_gpu, make_inventory
from tests.support.repairs import make_passed
from tests.support.virtual_time import FakeClock

pytestmark = pytest.mark.virtual_time

CARD = ResourceName("example.com/card")


async def test_the_condition_is_written_once(clock: FakeClock) -> None:
    """It says ready, and an hour without news writes nothing."""
    async with Stage(clock).running() as stage:
        stage.be_ready()
        await settle(3600)
        assert stage.api.node.condition is not None
        assert stage.api.node.condition.status == "True"
        assert stage.api.writes == ["condition changed"]
        stage.say(make_inventory([make_gpu(0)]))
        await settle(2 * GATHER_SECONDS)
        assert stage.api.writes == ["condition changed", "condition same"]


async def test_news_of_the_same_moment_is_one_write(clock: FakeClock) -> None:
    """What comes and goes within that moment is none."""
    async with Stage(clock).running() as stage:
        stage.be_ready()
        await settle()
        for count in (1, 3, 4):
            stage.say(make_inventory([make_gpu(index) for index in range(count)]))
            await settle()
        assert stage.api.writes == ["condition changed"]
        await settle(GATHER_SECONDS)
        assert stage.api.writes == ["condition changed", "condition same"]
        assert stage.api.node.condition is not None
        assert stage.api.node.condition.message == "4 GPUs are ready"
        stage.say(STUCK)
        await settle()
        stage.say(READY)
        await settle(60)
        assert stage.api.writes == ["condition changed", "condition same"]


async def test_news_of_another_write_is_no_reason_to_write_again(clock: FakeClock) -> None:
    """The node is seen as it was before; only if that lasts, somebody has taken the condition away."""
    stage = Stage(clock)
    stage.api.shows_conditions = False
    async with stage.running():
        stage.be_ready()
        await settle()
        stage.api.become(labels={"zone": "a"})
        await settle()
        assert stage.api.writes == ["condition changed"]
        stage.say(STUCK)
        await settle()
        assert stage.api.writes == ["condition changed"] * 2
        stage.api.shows_conditions = True
        await settle(POLL_RETRY_SECONDS + 1)
        assert stage.api.writes == ["condition changed"] * 3
        stage.api.become(condition=None)
        await settle()
        assert stage.api.writes == ["condition changed"] * 4


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


async def test_schedulers_are_kept_away_until_the_kubelet_counts_a_braked_gpu_no_more(clock: FakeClock) -> None:
    """For some seconds, also where an earlier agent put the taint on; a person's cordon needs none."""
    stage = Stage(clock)
    stage.api.become(taints=(BRAKE_TAINT,))
    async with stage.running():
        stage.be_ready()
        await settle(1)
        seen = [stage.api.node.taints]
        inventory = make_inventory([make_gpu(0)])
        (door,) = make_offering(inventory).doors
        cordon = Cordon(gpu=door.gpu, source=CordonSource.COMMAND, named="0", since_seconds=clock.wall())
        stage.say(Offering(doors=(replace(door, cordons=(cordon,)),)))
        await settle(1)
        seen.append(stage.api.node.taints)
        braked = replace(cordon, source=CordonSource.BRAKE)
        stage.say(Offering(doors=(replace(door, cordons=(cordon, braked)),)))
        for seconds in (1, BRAKE_TAINT_SECONDS - 3, 3 + POLL_RETRY_SECONDS):
            await settle(seconds)
            seen.append(stage.api.node.taints)
        assert seen == [(), (), (BRAKE_TAINT,), (BRAKE_TAINT,), ()]


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
    async with Stage(clock, events=False).running() as stage:
        await settle()
        stage.bus.publish_fact(GpuVanished(gpu=gpu_uuid(1), generation=2), source="test")
        await settle(60)
        assert stage.api.events == []


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


async def test_a_short_outage_is_no_reason_to_wait(clock: FakeClock) -> None:
    """Nobody else is likely to come back at the same moment."""
    async with Stage(clock, catch_up_max_seconds=3600).running() as stage:
        stage.be_ready()
        await settle(1)
        stage.api.go_away(GONE)
        await settle(0.5)
        assert "api-unreachable" in stage.codes()
        stage.api.trouble = None
        await settle(5)
        assert "api-unreachable" not in stage.codes()


async def test_the_same_is_not_told_twice_in_a_minute(clock: FakeClock) -> None:
    """What was kept back is counted in the next one."""
    async with Stage(clock).running() as stage:
        stage.be_ready()
        await settle(1)
        for seconds in (1, 61, 1):
            stage.bus.publish_fact(ConfigurationRejected(problems=("x",)), source="test")
            await settle(seconds)
        assert [(event.reason, count) for event, count in stage.api.events] == [
            ("ConfigurationRejected", 1),
            ("ConfigurationRejected", 2),
        ]


async def test_what_schedulers_are_told_of_parts_stands_on_the_node(clock: FakeClock) -> None:
    """As long as there is something to tell; then it goes, also where an earlier agent left it."""
    keys = (ANNOTATION, CLASSES_ANNOTATION, CLASSES_BOUND_ANNOTATION)
    async with Stage(clock).running() as stage:
        stage.be_ready()
        for said in ("one", "two"):
            stage.say(FractionOffers(published=said, published_classes=f"{said} class", bound_classes=f"{said} bound"))
            await settle(2)
            found = stage.api.node.annotations
            assert [found[key] for key in keys] == [said, f"{said} class", f"{said} bound"]
        stage.say(FractionOffers())
        await settle(2)
        assert not stage.api.node.annotations.keys() & set(keys)


async def test_the_proofs_of_gpus_stand_on_the_node_and_are_written_when_they_change(clock: FakeClock) -> None:
    """A restarted agent leaves the annotation until it knows the proofs; with proofs switched off it goes."""
    stage = Stage(clock)
    stage.live.replace(replace(stage.live.now, proof=ProofSettings(idle="quick")))
    async with stage.running():
        stage.be_ready()
        stage.say(GpuProofs(gpus={gpu_uuid(0): make_passed(1e9)}))
        await settle(2)
        assert '"level":"quick"' in stage.api.node.annotations[PROOF_ANNOTATION]
        stage.say(GpuProofs(gpus={gpu_uuid(0): make_passed(1e9)}, proving=gpu_uuid(0)))
        await settle(60)
        assert stage.api.writes.count(f"annotation {PROOF_ANNOTATION}") == 1
        stage.bus.retract_state(GpuProofs, source="test")
        await settle(60)
        assert PROOF_ANNOTATION in stage.api.node.annotations
        stage.live.replace(replace(stage.live.now, proof=ProofSettings()))
        await settle(60)
        assert PROOF_ANNOTATION not in stage.api.node.annotations


async def test_what_containers_have_is_written_once_for_those_that_start_together(clock: FakeClock) -> None:
    """The newest arrives, a second later at most; while nothing changes nothing is written; in the end it goes."""
    async with Stage(clock).running() as stage:
        stage.be_ready()
        await settle(10)
        written = stage.api.writes.count(f"annotation {BOUND_ANNOTATION}")
        for number in range(50):
            stage.say(FractionOffers(bound=f"bound {number}"))
            await settle(0.02)
        await settle(1)
        assert stage.api.node.annotations[BOUND_ANNOTATION] == "bound 49"
        assert stage.api.writes.count(f"annotation {BOUND_ANNOTATION}") - written <= 3
        writes = len(stage.api.writes)
        await settle(120)
        assert len(stage.api.writes) == writes
        stage.say(FractionOffers())
        await settle(1)
        assert BOUND_ANNOTATION not in stage.api.node.annotations


def told(stage: Stage) -> list[tuple[str, str]]:
    return [(each.type, each.status) for each in stage.api.node.device_conditions]


async def test_the_condition_of_a_class_follows_its_devices(clock: FakeClock) -> None:
    """Written when it says something else, and taken away when no class has it any more."""
    device = HostDevice(id=DeviceId("a"), name="/dev/card0", nodes=("/dev/card0",))
    one = DeviceClass(resource=CARD, nodes=("/dev/card*",), condition="CardsReady")
    stage = Stage(clock)
    stage.live.replace(replace(stage.live.now, devices=DevicesSettings(classes=(one,))))
    async with stage.running():
        stage.be_ready()
        await settle()
        assert told(stage) == [], "nobody has looked yet"
        stage.say(DeviceTable(classes=(DeviceClassState(resource=CARD, devices=(device,)),)))
        await settle()
        assert told(stage) == [("devices.nodeagent.io/CardsReady", "True")]
        gone = replace(device, standing=Standing.GONE, reason="its node is not there")
        stage.say(DeviceTable(classes=(DeviceClassState(resource=CARD, devices=(gone,)),)))
        await settle()
        assert told(stage) == [("devices.nodeagent.io/CardsReady", "False")]
        written = len(stage.api.writes)
        stage.say(DeviceTable(classes=(DeviceClassState(resource=CARD, devices=(gone,)),)))
        await settle()
        assert len(stage.api.writes) == written
        stage.live.replace(replace(stage.live.now, devices=DevicesSettings()))
        stage.say(DeviceTable())
        await settle()
        assert told(stage) == []


async def test_how_a_mig_layout_stands_is_told_by_a_label(clock: FakeClock) -> None:
    """Whoever wrote it before; and what it says is no wish of anybody's."""
    stage = Stage(clock)
    stage.api.become(labels={"nvidia.com/mig.config.state": "failed"})
    async with stage.running():
        stage.be_ready()
        for standing in ("pending", "success"):
            stage.say(MigState(layout="all-1g.10gb", standing=standing))
            await settle(10)
            assert stage.api.node.labels["nvidia.com/mig.config.state"] == standing


async def test_a_mig_layout_that_nobody_asks_for_any_more_is_not_told_as_under_way(clock: FakeClock) -> None:
    """The label goes once nothing is changed for it any more; how an earlier one ended stays."""
    stage = Stage(clock)
    async with stage.running():
        stage.be_ready()
        for standing, left in (("pending", None), ("rebooting", None), ("failed", "failed")):
            stage.say(MigState(layout="all-1g.10gb", standing=standing))
            await settle(10)
            assert stage.api.node.labels["nvidia.com/mig.config.state"] == standing
            stage.say(MigState())
            await settle(10)
            assert stage.api.node.labels.get("nvidia.com/mig.config.state") == left
