"""The cluster component between the bus and a node in a cluster."""

from collections.abc import AsyncGenerator, AsyncIterator
from contextlib import asynccontextmanager
from random import Random
from typing import Any

import anyio

from nodeagent.components.cluster.component import Cluster
from nodeagent.config.live import LiveSettings
from nodeagent.config.schema import Settings
from nodeagent.config.sections.cluster import KubernetesSettings
from nodeagent.core.channels.bus import Bus
from nodeagent.core.conditions import Conditions
from nodeagent.edge.kube.pods import KubePods
from nodeagent.model.cluster import PodLabelTable
from nodeagent.model.conditions import CATALOGUE
from nodeagent.model.driver import DriverPhase, DriverState
from nodeagent.model.errors import NodeagentError
from tests.fakes.node_api import FakeNodeApi
from tests.support.gpus import make_gpu, make_inventory
from tests.support.virtual_time import FakeClock

READY = DriverState(phase=DriverPhase.READY)
STUCK = DriverState(phase=DriverPhase.STUCK, detail="nvmlInit")
GONE = NodeagentError("the server does not answer")


class FakePods(KubePods):
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
    def __init__(self, clock: FakeClock, **kubernetes: Any) -> None:
        self.bus = Bus(clock)
        self.conditions = Conditions(self.bus, clock, CATALOGUE)
        self.live = LiveSettings(Settings(kubernetes=KubernetesSettings(**kubernetes)))
        self.api, self.pods = FakeNodeApi(), FakePods()
        self._clock = clock

    @asynccontextmanager
    async def running(self) -> AsyncIterator["Stage"]:
        cluster = Cluster(
            self.bus,
            self.conditions,
            self._clock,
            self.live,
            self.api,
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
