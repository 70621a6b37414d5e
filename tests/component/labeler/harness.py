"""The labeler with everything round it, and what is said to it."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from random import Random
from typing import Any

import anyio

from nodeagent.components.labeler.component import Labeler, LabelSinks
from nodeagent.config.live import LiveSettings
from nodeagent.config.schema import Settings
from nodeagent.config.sections.cluster import LabelsSettings
from nodeagent.core.channels.bus import Bus
from nodeagent.core.conditions import Conditions
from nodeagent.edge.host.machine.node_facts import HostNodeFacts
from nodeagent.model.cluster import ClusterLink
from nodeagent.model.conditions import CATALOGUE
from nodeagent.model.driver import DriverPhase, DriverState
from nodeagent.model.errors import NodeagentError
from nodeagent.model.health import DeviceHealth, HealthReport, Verdict
from nodeagent.model.labels import LabelState, NodeFacts, VendorFunction
from tests.fakes.node_api import FakeNodeApi
from tests.support.gpus import gpu_uuid, make_gpu
from tests.support.virtual_time import FakeClock

P = "nvidia.com/"
COUNT, HEALTHY, PRESENT = f"{P}gpu.count", f"{P}gpu.healthy.count", f"{P}gpu.present"
READY = DriverState(phase=DriverPhase.READY, driver_version="570.172.08", cuda_version=(12, 8))
AWAY = DriverState(phase=DriverPhase.NOT_LOADED)


class FakeFacts(HostNodeFacts):
    """The node's facts, or why they cannot be had."""

    def __init__(self) -> None:
        functions = (VendorFunction(address=make_gpu(0).pci.address, pci_class="0302"),)
        self.facts: NodeFacts | NodeagentError = NodeFacts(functions=functions)
        self.looks = 0

    async def read_facts(self) -> NodeFacts:
        self.looks += 1
        if isinstance(self.facts, NodeagentError):
            raise self.facts
        return self.facts


class FakeFile:
    """A feature file in memory."""

    def __init__(self) -> None:
        self.text = ""
        self.writes = 0
        self.trouble: NodeagentError | None = None

    async def read(self) -> str:
        return self.text

    async def write(self, text: str) -> None:
        if self.trouble is not None:
            raise self.trouble
        self.text = text
        self.writes += 1

    async def remove(self) -> bool:
        if self.trouble is not None:
            raise self.trouble
        was_there, self.text = bool(self.text), ""
        return was_there


class Stage:
    """The labeler with everything round it; the cluster's word reaches the bus by `reach`."""

    def __init__(self, clock: FakeClock, *sinks: Any, **labels: Any) -> None:
        self.bus = Bus(clock)
        self.conditions = Conditions(self.bus, clock, CATALOGUE)
        self.live = LiveSettings(Settings(labels=LabelsSettings(sinks=sinks, **labels)))
        self.facts, self.file, self.api = FakeFacts(), FakeFile(), FakeNodeApi()
        self.printed: list[str] = []
        self._clock = clock

    @asynccontextmanager
    async def running(self) -> AsyncIterator["Stage"]:
        labeler = Labeler(
            self.bus,
            self.conditions,
            self._clock,
            self.live,
            self.facts,
            LabelSinks(self.api, {"nfd_file": self.file}, self.printed.append),
            rng=Random(1),
        )
        async with anyio.create_task_group() as tasks:
            await tasks.start(lambda *, task_status: labeler.run(task_status=task_status))
            yield self
            tasks.cancel_scope.cancel()

    def say(self, *states: object) -> None:
        for state in states:
            self.bus.publish_state(state, source="test")

    def reach(self, *, reachable: bool = True) -> None:
        self.say(self.api.node, ClusterLink(reachable=reachable))

    def codes(self) -> set[tuple[str, str]]:
        return {(each.code, each.key) for each in self.conditions.all_set()}

    @property
    def state(self) -> LabelState:
        envelope = self.bus.latest(LabelState)
        assert envelope is not None
        return envelope.value


async def settle(seconds: float = 0.1) -> None:
    await anyio.sleep(seconds)


def judge(*verdicts: Verdict) -> HealthReport:
    return HealthReport(
        generation=1,
        devices=tuple(
            DeviceHealth(device=gpu_uuid(index), gpu=gpu_uuid(index), verdict=verdict, since_seconds=0)
            for index, verdict in enumerate(verdicts)
        ),
    )
