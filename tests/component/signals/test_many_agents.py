"""A thousand agents with faulty GPUs at the same moment, at an API server that admits as few as their share allows.

Time jumps: what a thousand nodes compute, each of them computes for itself, and not one after another.
"""

import math
import sys
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path
from random import Random
from typing import Any

import anyio
import pytest
import yaml
from aiohttp import web

from nodeagent.components.signals.component import FaultSinks, Signals
from nodeagent.config.live import LiveSettings
from nodeagent.config.schema import Settings
from nodeagent.core.channels.bus import Bus
from nodeagent.core.conditions import Conditions
from nodeagent.edge.kube.client import KubeClient
from nodeagent.edge.kube.node import KubeNode
from nodeagent.edge.kube.pods import KubePodStatus
from nodeagent.model.cluster import PodEventCounts
from nodeagent.model.conditions import CATALOGUE
from tests.fakes.apiserver import FakeApiServer
from tests.support.gpus import gpu_uuid
from tests.support.virtual_time import FakeClock
from tests.support.wire.given_credentials import GivenCredentials
from tests.unit.rules.test_signals import make_fault, make_pod, make_table

GPUS = 8
LIMIT_SECONDS = 60.0
TRIES = 12
"""Tries of a write within the limit: after four failures the pauses are 15 to 30 seconds, and shorter in sum before."""
IN_FLIGHT, OTHER_SHARES = 600, 245
"""Requests that an API server carries out at a time by default, and the shares of the levels that it has by default."""
FLOW_CONTROL = yaml.safe_load_all((Path(__file__).parents[3] / "deploy/flow-control.yaml").read_text())
LEVEL = next(each["spec"]["limited"] for each in FLOW_CONTROL if "limited" in each["spec"])
SHARES, QUEUE = LEVEL["nominalConcurrencyShares"], LEVEL["limitResponse"]["queuing"]["queueLengthLimit"]
SEATS = math.ceil(IN_FLIGHT * SHARES / (OTHER_SHARES + SHARES))

STORE_SECONDS = 0.01
"""How long a request keeps its seat, as for the store to be durable."""
QUEUE_SECONDS = 15.0
"""How long a request may wait in the queue: a quarter of a request's time."""
REFUSAL = {"kind": "Status", "code": 429, "message": "too many requests, please try again later"}

pytestmark = pytest.mark.virtual_time


class BusyApiServer(FakeApiServer):
    """Carries out as many requests at a time as it has seats; others wait in a queue of bounded length and time."""

    def __init__(self, seats: int, queue: int) -> None:
        super().__init__()
        self.refused = self.most = 0
        self._free = anyio.Semaphore(seats)
        self._seats, self._queue = seats, queue

    async def _serve(self, request: web.Request) -> web.StreamResponse:
        if self._free.statistics().tasks_waiting >= self._queue and not self._free.value:
            return self._refuse()
        with anyio.move_on_after(QUEUE_SECONDS):
            await self._free.acquire()
            try:
                self.most = max(self.most, self._seats - self._free.value)
                await anyio.sleep(STORE_SECONDS)
                with anyio.CancelScope(shield=True):
                    return await super()._serve(request)
            finally:
                self._free.release()
        return self._refuse()

    def _refuse(self) -> web.Response:
        self.refused += 1
        return web.json_response(REFUSAL, status=429, headers={"Retry-After": "1"})


async def identify() -> None:
    """Every pod has a name."""


class Agent:
    """The part of an agent that tells pods of faults, with the agent's client of the API server."""

    def __init__(self, name: str, kubeconfig: Path) -> None:
        clock = FakeClock()
        self.name, self.bus = name, Bus(clock)
        self.client = KubeClient(GivenCredentials(kubeconfig))
        sinks = FaultSinks(KubeNode(self.client, name, clock, Random(name)), KubePodStatus(self.client))
        conditions, live = Conditions(self.bus, clock, CATALOGUE), LiveSettings(Settings())
        self.signals = Signals(self.bus, conditions, clock, live, sinks, name, identify)

    def break_gpus(self) -> None:
        """All GPUs of the node at once, with a pod on each."""
        held = ((make_pod(f"{self.name}-{index}"), gpu_uuid(index)) for index in range(GPUS))
        self.bus.publish_state(make_table(*held), source="test")
        for index in range(GPUS):
            fault = make_fault(gpu=gpu_uuid(index), index=index, devices=(gpu_uuid(index),))
            self.bus.publish_fact(fault, source="test")

    async def wait_told(self) -> None:
        """Until all pods of the node are told."""
        with self.bus.watch(PodEventCounts, client="test") as counts:
            async for each in counts:
                if each.value.written == GPUS:
                    break

    @property
    def counts(self) -> PodEventCounts:
        counts = self.bus.read(PodEventCounts)
        assert counts is not None
        return counts


@asynccontextmanager
async def running(agents: list[Agent]) -> AsyncIterator[None]:
    async with AsyncExitStack() as stack, anyio.create_task_group() as tasks:
        for agent in agents:
            stack.push_async_callback(agent.client.aclose)
            run: Any = agent.signals.run
            await tasks.start(lambda run=run, *, task_status: run(task_status=task_status))
        yield
        tasks.cancel_scope.cancel()


@pytest.mark.nightly
@pytest.mark.timeout(900)
@pytest.mark.parametrize(("agents", "queue"), [(1000, QUEUE), (50, 0)])
async def test_all_pods_are_told_within_a_minute(tmp_path: Path, agents: int, queue: int) -> None:
    """None twice and none never, in the chart's queue, and at a level without a queue that refuses most requests."""
    server = BusyApiServer(SEATS, queue)
    async with server.running():
        crowd = [
            Agent(f"node-{number:03}", server.write_kubeconfig(tmp_path / "kubeconfig")) for number in range(agents)
        ]
        async with running(crowd):
            began = anyio.current_time()
            for agent in crowd:
                agent.break_gpus()
            with anyio.move_on_after(2 * LIMIT_SECONDS):
                for agent in crowd:
                    await agent.wait_told()
            took = anyio.current_time() - began
    failed = max(agent.counts.failed for agent in crowd)
    events = server.store.objects["events"].values()
    pods = {each["regarding"]["uid"] for each in events}
    sys.stdout.write(
        f"{took:.1f} s for {len(events)} events, {server.refused} refusals, {failed} of an agent at most\n"
    )
    assert (len(events), len(pods)) == (agents * GPUS, agents * GPUS)
    assert (server.most, server.refused > 0) == (SEATS, not queue)
    assert sum(agent.counts.dropped for agent in crowd) == 0
    assert failed <= TRIES * GPUS
    assert took <= LIMIT_SECONDS
