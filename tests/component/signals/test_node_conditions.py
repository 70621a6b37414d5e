"""Faulty GPUs between the bus and the node conditions of the configuration."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from random import Random

import anyio
import pytest

from nodeagent.components.signals.node_conditions_task import (
    CONTESTED,
    GATHER_SECONDS,
    MARKED,
    NOT_WRITTEN,
    NodeConditions,
)
from nodeagent.config.live import LiveSettings
from nodeagent.config.schema import Settings
from nodeagent.config.sections.cluster import SignalsSettings
from nodeagent.config.sections.hardware import GpusSettings
from nodeagent.config.sections.repairers import NodeConditionSettings
from nodeagent.core.channels.bus import Bus
from nodeagent.core.conditions import Conditions
from nodeagent.edge.kube.errors import ApiInvalid
from nodeagent.model.cluster import TERMINAL_ANNOTATION, ClusterLink, NodeCondition
from nodeagent.model.conditions import CATALOGUE
from nodeagent.model.events import ConfigurationReloaded
from nodeagent.model.health import Verdict
from tests.component.cluster.harness import settle
from tests.fakes.node_api import FakeNodeApi
from tests.support.gpus import gpu_uuid, make_gpu, make_inventory
from tests.support.slices import make_report
from tests.support.virtual_time import FakeClock

pytestmark = pytest.mark.virtual_time

EKS = NodeConditionSettings(type="AcceleratedHardwareReady", true_means="healthy")
NPD = NodeConditionSettings(type="GPUProblem", true_means="faulty")
INVENTORY = make_inventory([make_gpu(0), make_gpu(1)])
GATHERED = 2 * GATHER_SECONDS
REFUSED = ApiInvalid("write", 422, "denied by the policy")


def make_settings(*configured: NodeConditionSettings, exclude: tuple[str, ...] = ()) -> Settings:
    return Settings(signals=SignalsSettings(node_conditions=configured), gpus=GpusSettings(exclude=exclude))


class Stage:
    def __init__(self, clock: FakeClock, settings: Settings) -> None:
        self.bus = Bus(clock)
        self.conditions = Conditions(self.bus, clock, CATALOGUE)
        self.live = LiveSettings(settings)
        self.api = FakeNodeApi()

    @asynccontextmanager
    async def running(self) -> AsyncIterator["Stage"]:
        component = NodeConditions(self.bus, self.conditions, self.live, self.api, rng=Random(1))
        async with anyio.create_task_group() as tasks:
            await tasks.start(lambda *, task_status: component.run(task_status=task_status))
            tasks.start_soon(self._follow)
            await settle(GATHERED)
            yield self
            tasks.cancel_scope.cancel()

    async def _follow(self) -> None:
        """The cluster component's part."""
        async for node in self.api.follow_node():
            self.say(node)

    def say(self, *states: object) -> None:
        for state in states:
            self.bus.publish_state(state, source="test")

    async def be_ready(self) -> None:
        self.say(ClusterLink(reachable=True), INVENTORY, make_report(INVENTORY))
        await settle(GATHERED)

    async def break_gpu(self, *keys: str, index: int = 1, verdict: Verdict = Verdict.UNHEALTHY) -> None:
        self.say(make_report(INVENTORY, {gpu_uuid(index): [(key, verdict) for key in keys]}))
        await settle(GATHERED)

    def told(self) -> dict[str, tuple[str, str]]:
        return {each.type: (each.status, each.reason) for each in self.api.node.other_conditions}

    def details(self) -> dict[str, str]:
        return {each.code: each.detail for each in self.conditions.all_set()}


async def test_a_faulty_gpu_turns_the_conditions_and_a_healthy_one_turns_them_back(clock: FakeClock) -> None:
    """Each by its polarity; in a quiet hour nothing is written, and the time moves only with the status."""
    async with Stage(clock, make_settings(EKS, NPD)).running() as stage:
        assert stage.api.writes == []
        await stage.be_ready()
        fine = {EKS.type: ("True", "GPUsHealthy"), NPD.type: ("False", "GPUsHealthy")}
        assert (stage.told(), stage.api.writes) == (fine, ["condition changed"] * 2)
        await settle(3600)
        assert len(stage.api.writes) == 2
        await stage.break_gpu("xid-79")
        ill = {EKS.type: ("False", "NvidiaXID79Error"), NPD.type: ("True", "NvidiaXID79Error")}
        assert (stage.told(), stage.api.writes[2:]) == (ill, ["condition changed"] * 2)
        await stage.break_gpu("xid-79", "remap-failed")
        assert stage.api.writes[4:] == ["condition same"] * 2
        await stage.break_gpu()
        assert stage.told() == fine


async def test_a_gpu_left_alone_replaces_no_node(clock: FakeClock) -> None:
    async with Stage(clock, make_settings(EKS, exclude=("1",))).running() as stage:
        await stage.be_ready()
        await stage.break_gpu("xid-79")
        assert stage.told() == {EKS.type: ("True", "GPUsHealthy")}


async def test_a_node_given_up_is_faulty_before_any_verdict(clock: FakeClock) -> None:
    """A driver that never came up has no GPU to judge."""
    async with Stage(clock, make_settings(EKS)).running() as stage:
        stage.say(ClusterLink(reachable=True))
        stage.api.become(annotations={TERMINAL_ANNOTATION: "DriverStuck after 5 attempts: nvmlInit"})
        await settle(GATHERED)
        assert stage.told() == {EKS.type: ("False", "GPUsFailedForGood")}


async def test_nothing_is_asked_of_an_api_server_that_is_away(clock: FakeClock) -> None:
    async with Stage(clock, make_settings(EKS)).running() as stage:
        stage.say(ClusterLink(reachable=False), INVENTORY, make_report(INVENTORY))
        await settle(600)
        assert stage.api.writes == []
        stage.say(ClusterLink(reachable=True))
        await settle(GATHERED)
        assert stage.told() == {EKS.type: ("True", "GPUsHealthy")}


async def test_a_type_that_the_policy_refuses_is_tried_again_with_pauses(clock: FakeClock) -> None:
    """The condition says why; an hour costs some requests, and the policy's mending ends it."""
    async with Stage(clock, make_settings(EKS)).running() as stage:
        stage.api.write_trouble = REFUSED
        await stage.be_ready()
        assert "denied by the policy" in stage.details()[NOT_WRITTEN]
        await settle(3600)
        stage.api.write_trouble = None
        assert stage.told() == {}
        await settle(61)
        assert stage.told() == {EKS.type: ("True", "GPUsHealthy")}
        assert NOT_WRITTEN not in stage.details()


async def test_a_condition_of_another_program_is_left_alone(clock: FakeClock) -> None:
    """Whoever wrote it last has it; once it is gone the agent writes."""
    async with Stage(clock, make_settings(EKS)).running() as stage:
        await stage.be_ready()
        theirs = NodeCondition(type=EKS.type, status="False", reason="DCGMError")
        writers = {EKS.type: "eks-node-monitoring-agent"}
        stage.api.become(other_conditions=(theirs,), written_conditions=(), condition_writers=writers)
        await settle(600)
        assert stage.told() == {EKS.type: ("False", "DCGMError")}
        assert stage.details()[CONTESTED] == f"{EKS.type} is written by eks-node-monitoring-agent"
        stage.api.become(other_conditions=(), condition_writers={})
        await settle(GATHERED)
        assert stage.told() == {EKS.type: ("True", "GPUsHealthy")}
        assert CONTESTED not in stage.details()


async def test_a_reload_takes_away_what_is_no_longer_configured(clock: FakeClock) -> None:
    """And writes what is new."""
    async with Stage(clock, make_settings(EKS)).running() as stage:
        await stage.be_ready()
        stage.live.now = make_settings(NPD)
        stage.bus.publish_fact(ConfigurationReloaded(changed=("signals.node_conditions",)), source="test")
        await settle(GATHERED)
        assert stage.told() == {NPD.type: ("False", "GPUsHealthy")}


async def test_a_node_that_nvsentinel_has_is_named(clock: FakeClock) -> None:
    """And left as it is: no write at all without a configured condition."""
    async with Stage(clock, make_settings()).running() as stage:
        await stage.be_ready()
        stage.api.become(labels={"dgxc.nvidia.com/nvsentinel-state": "draining"})
        await settle(GATHERED)
        assert stage.details()[MARKED].startswith("NVSentinel has the pods of this node leave")
        stage.api.become(labels={})
        await settle(GATHERED)
        assert (MARKED in stage.details(), stage.api.writes) == (False, [])
