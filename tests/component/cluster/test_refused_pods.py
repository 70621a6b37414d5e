"""Refused pods are deleted where the configuration asks for it, told of before, within limits, and never by polling."""

from collections.abc import AsyncGenerator, AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from random import Random
from typing import Any

import anyio
import pytest
from msgspec.structs import replace

from nodeagent.components.cluster.refused_pods import AGAIN_SECONDS, PERIOD_SECONDS
from nodeagent.components.cluster.refused_pods_task import LEFT, UNKNOWN, RefusedPods
from nodeagent.config.live import LiveSettings
from nodeagent.config.schema import Settings
from nodeagent.config.sections.cluster import KubernetesSettings
from nodeagent.core.channels.bus import Bus
from nodeagent.core.clock import SystemClock
from nodeagent.core.conditions import Conditions
from nodeagent.edge.kube.node import KubeNode
from nodeagent.edge.kube.pods import KubeUnstartedPods, UnstartedPodTable
from nodeagent.model.cluster import UnstartedPod
from nodeagent.model.conditions import CATALOGUE
from nodeagent.model.errors import NodeagentError
from nodeagent.model.events import ConfigurationReloaded, RefusedPodDeleted
from nodeagent.model.ids import ResourceName
from nodeagent.model.plugin import AdvertisedResource, PluginState
from tests.component.cluster.harness import GONE, settle
from tests.component.edge_kube.harness import open_client
from tests.component.edge_kube.test_unstarted_pods import add, make_pod
from tests.fakes.apiserver import NODE
from tests.fakes.node_api import FakeNodeApi
from tests.support.virtual_time import FakeClock
from tests.unit.components.cluster.test_refused_pods import GPU, UNAVAILABLE, make_failed, make_pending

on_virtual_time = pytest.mark.virtual_time
RESOURCES = ("nvidia.com/gpu", "tencent.com/vcuda-core")
SERVED = PluginState(
    resources=tuple(AdvertisedResource(name=ResourceName(name), socket="s", registered=True) for name in RESOURCES)
)


class FakeUnstartedPods(KubeUnstartedPods):
    """Tells each new table; `troubles` has what the next deletions answer, `False` for a pod that has changed."""

    def __init__(self) -> None:
        self.table: dict[str, UnstartedPod] = {}
        self.is_away = False
        self.asked: list[str] = []
        self.troubles: list[NodeagentError | bool] = []
        self._changed = anyio.Event()

    def put(self, *pods: UnstartedPod) -> None:
        self.table = {each.pod.uid: each for each in pods}
        self._wake()

    def go_away(self) -> None:
        self.is_away = True
        self._wake()

    async def follow(self) -> AsyncGenerator[UnstartedPodTable, None]:
        while not self.is_away:
            yield dict(self.table)
            await self._changed.wait()
        raise GONE

    async def delete(self, seen: UnstartedPod) -> bool:
        self.asked.append(seen.pod.name)
        answer = self.troubles.pop(0) if self.troubles else True
        if isinstance(answer, NodeagentError):
            raise answer
        if answer:
            self.table = {uid: each for uid, each in self.table.items() if uid != seen.pod.uid}
            self._wake()
        return answer

    def _wake(self) -> None:
        self._changed.set()
        self._changed = anyio.Event()


class Stage:
    def __init__(self, clock: FakeClock, **kubernetes: Any) -> None:
        self.bus = Bus(clock)
        self.conditions = Conditions(self.bus, clock, CATALOGUE)
        words = {"delete_refused_pods": ("failed", "pending")} | kubernetes
        self.live = LiveSettings(Settings(kubernetes=KubernetesSettings(**words)))
        self.api, self.pods = FakeNodeApi(), FakeUnstartedPods()
        self._clock = clock

    @asynccontextmanager
    async def running(self) -> AsyncIterator["Stage"]:
        component = RefusedPods(self.bus, self.conditions, self._clock, self.live, self.api, self.pods, rng=Random(1))
        async with anyio.create_task_group() as tasks:
            await tasks.start(lambda *, task_status: component.run(task_status=task_status))
            self.bus.publish_state(self.api.node, source="test")
            self.bus.publish_state(SERVED, source="test")
            await settle()
            yield self
            tasks.cancel_scope.cancel()

    def facts(self) -> list[RefusedPodDeleted]:
        return [each.value for each in self.bus.history() if isinstance(each.value, RefusedPodDeleted)]

    def detail(self, code: str) -> str:
        return "".join(each.detail for each in self.conditions.all_set() if each.code == code)


@on_virtual_time
async def test_a_failed_pod_is_deleted_and_told(clock: FakeClock) -> None:
    """As an event on the pod before, and on the bus afterwards; a bare pod stays."""
    async with Stage(clock).running() as stage:
        bare = make_failed("bare", controller="")
        stage.pods.put(bare, make_failed("a"))
        await settle()
        assert stage.pods.asked == ["a"]
        ((event, count),) = stage.api.events
        assert (event.reason, event.pod, count) == ("RefusedPodDeleted", make_failed("a").pod, 1)
        (fact,) = stage.facts()
        assert (fact.pod, fact.controller, fact.reason) == (event.pod, "StatefulSet", UNAVAILABLE.format(GPU))
        stage.pods.put(bare)
        await settle(3600)
        assert stage.pods.asked == ["a"]


@on_virtual_time
async def test_a_pending_pod_has_its_time(clock: FakeClock) -> None:
    """A container that starts meanwhile is no matter; one that is still refused has its pod deleted then."""
    async with Stage(clock, refused_pod_wait_seconds=120.0).running() as stage:
        stage.pods.put(make_pending("started"), make_pending("a"))
        await settle(100)
        stage.pods.put(make_pending("a"))
        await settle(19)
        assert stage.pods.asked == []
        await settle(2)
        assert stage.pods.asked == ["a"]


@on_virtual_time
async def test_nothing_is_deleted_before_the_resources_are_known(clock: FakeClock) -> None:
    """A refusal for another plugin's resource must not be taken for one of the agent's."""
    stage = Stage(clock)
    component = RefusedPods(stage.bus, stage.conditions, clock, stage.live, stage.api, stage.pods, rng=Random(1))
    async with anyio.create_task_group() as tasks:
        await tasks.start(lambda *, task_status: component.run(task_status=task_status))
        stage.pods.put(make_failed("a"))
        await settle(60)
        stage.bus.publish_state(SERVED, source="test")
        await settle(60)
        assert stage.pods.asked == []
        stage.bus.publish_state(stage.api.node, source="test")
        await settle()
        assert stage.pods.asked == ["a"]
        tasks.cancel_scope.cancel()


@on_virtual_time
async def test_a_node_that_refuses_everything_is_told_and_brings_no_flood(clock: FakeClock) -> None:
    """Each deleted pod is replaced at once, and refused again: so many deletions in a period, and no more."""
    async with Stage(clock, refused_pods_max=3).running() as stage:
        for number in range(10):
            stage.pods.put(make_failed(f"web-{number}"))
            await settle()
        assert stage.pods.asked == ["web-0", "web-1", "web-2"]
        assert "ml/web-9 (Allocate failed" in stage.detail(LEFT)
        await settle(PERIOD_SECONDS)
        assert stage.pods.asked[3:] == ["web-9"]
        await settle()
        assert stage.detail(LEFT) == ""


@on_virtual_time
async def test_a_pod_that_changed_is_looked_at_again_when_its_change_is_known(clock: FakeClock) -> None:
    """Neither is the request repeated at once, nor the event."""
    async with Stage(clock).running() as stage:
        stage.pods.troubles = [False]
        stage.pods.put(make_failed("a"))
        await settle(3600)
        assert (stage.pods.asked, stage.facts()) == (["a"], [])
        stage.pods.put(make_failed("a", version="8"))
        await settle()
        assert (stage.pods.asked, len(stage.facts()), len(stage.api.events)) == (["a", "a"], 1, 1)


@on_virtual_time
async def test_trouble_with_one_pod_is_told_and_holds_up_no_other(clock: FakeClock) -> None:
    async with Stage(clock).running() as stage:
        stage.pods.troubles = [GONE]
        stage.pods.put(make_failed("a"), make_failed("b"))
        await settle()
        assert (stage.pods.asked, stage.detail(LEFT)) == (["a", "b"], str(GONE))
        await settle(AGAIN_SECONDS)
        assert stage.pods.asked == ["a", "b", "a"]
        assert (stage.detail(LEFT), len(stage.api.events)) == ("", 2)


@on_virtual_time
async def test_a_refused_event_keeps_no_pod_and_none_is_written_where_none_is_wanted(clock: FakeClock) -> None:
    async with Stage(clock).running() as stage:
        stage.api.write_trouble = GONE
        stage.pods.put(make_failed("a"))
        await settle()
        assert (stage.pods.asked, stage.api.events) == (["a"], [])
    async with Stage(clock, events=False).running() as stage:
        stage.pods.put(make_failed("a"))
        await settle()
        assert (stage.pods.asked, stage.api.events) == (["a"], [])


@on_virtual_time
async def test_a_broken_watch_is_told_and_begun_again(clock: FakeClock) -> None:
    async with Stage(clock).running() as stage:
        stage.pods.go_away()
        await settle()
        assert stage.detail(UNKNOWN) == str(GONE)
        stage.pods.is_away = False
        stage.pods.put(make_failed("a"))
        await settle(10)
        assert (stage.pods.asked, stage.detail(UNKNOWN)) == (["a"], "")


@on_virtual_time
async def test_new_settings_count_at_once(clock: FakeClock) -> None:
    """Switched off, nothing more is deleted; on again for pods that wait already."""
    async with Stage(clock, delete_refused_pods=()).running() as stage:
        stage.pods.put(make_failed("a"))
        await settle(60)
        assert stage.pods.asked == []
        on = replace(stage.live.now.kubernetes, delete_refused_pods=("failed",))
        stage.live.now = replace(stage.live.now, kubernetes=on)
        changed = ConfigurationReloaded(changed=("kubernetes.delete_refused_pods",))
        stage.bus.publish_fact(changed, source="test")
        await settle()
        assert stage.pods.asked == ["a"]


async def test_the_api_server_is_asked_for_what_is_to_be_done_alone(tmp_path: Path) -> None:
    """One list, one watch, and for a refused pod an event in its namespace and its deletion."""
    clock = SystemClock()
    bus = Bus(clock)
    conditions = Conditions(bus, clock, CATALOGUE)
    live = LiveSettings(Settings(kubernetes=KubernetesSettings(delete_refused_pods=("failed",))))
    async with open_client(tmp_path) as (server, client):
        node = KubeNode(client, NODE, clock, Random(1), silence_seconds=20)
        pods = KubeUnstartedPods(client, NODE, Random(1), silence_seconds=20)
        bus.publish_state(await node.read_node(), source="test")
        bus.publish_state(SERVED, source="test")
        component = RefusedPods(bus, conditions, clock, live, node, pods, rng=Random(1))
        status = {"reason": "UnexpectedAdmissionError", "message": UNAVAILABLE.format(GPU)}
        add(server, make_pod("stays", reason="Evicted"))
        async with anyio.create_task_group() as tasks:
            await tasks.start(lambda *, task_status: component.run(task_status=task_status))
            add(server, make_pod("a", **status))
            with bus.listen(RefusedPodDeleted, client="test", after=0) as facts, anyio.fail_after(20):
                fact = await anext(facts)
            tasks.cancel_scope.cancel()
        assert fact.value.pod.name == "a"
        assert sorted(server.pods) == ["stays"]
        assert server.requests[-2:] == [
            ("POST", "/apis/events.k8s.io/v1/namespaces/ml/events"),
            ("DELETE", "/api/v1/namespaces/ml/pods/a"),
        ]
        assert len(server.writes) == 2
        (event,) = server.events
        regarding = {"apiVersion": "v1", "kind": "Pod", "namespace": "ml", "name": "a", "uid": "uid-a"}
        assert (event["reason"], event["regarding"], event["type"]) == ("RefusedPodDeleted", regarding, "Warning")
        assert event["metadata"]["namespace"] == "ml"
