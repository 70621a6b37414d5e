"""A thousand agents with faulty GPUs at the same moment, at an API server that admits as few as their share allows."""

import asyncio
import json
import math
import sys
import time
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path
from random import Random
from typing import Any

import anyio
import pytest
import yaml

from nodeagent.components.signals.component import FaultSinks, Signals
from nodeagent.config.live import LiveSettings
from nodeagent.config.schema import Settings
from nodeagent.core.channels.bus import Bus
from nodeagent.core.clock import SystemClock
from nodeagent.core.conditions import Conditions
from nodeagent.edge.kube.client import KubeClient
from nodeagent.edge.kube.node import KubeNode
from nodeagent.edge.kube.pods import KubePodStatus
from nodeagent.model.cluster import PodEventCounts
from nodeagent.model.conditions import CATALOGUE
from tests.support.gpus import gpu_uuid
from tests.support.wire.given_credentials import GivenCredentials
from tests.unit.rules.test_signals import make_fault, make_pod, make_table

AGENTS, GPUS = 1000, 8
LIMIT_SECONDS = 60.0
TRIES = 12
"""Tries of a write within the limit: after four failures the pauses are 15 to 30 seconds, and shorter in sum before."""
IN_FLIGHT, OTHER_SHARES = 600, 245
"""Requests that an API server carries out at a time by default, and the shares of the levels that it has by default."""
FLOW_CONTROL = yaml.safe_load_all((Path(__file__).parents[3] / "deploy/flow-control.yaml").read_text())
SHARES = next(each["spec"]["limited"]["nominalConcurrencyShares"] for each in FLOW_CONTROL if "limited" in each["spec"])
SEATS = math.ceil(IN_FLIGHT * SHARES / (OTHER_SHARES + SHARES))


async def identify() -> None:
    """Every pod has a name."""


class Agent:
    """The part of an agent that tells pods of faults, with the agent's client of the API server."""

    def __init__(self, name: str, kubeconfig: Path) -> None:
        clock = SystemClock()
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
async def busy_api_server(counts: dict[str, int]) -> AsyncIterator[int]:
    """The port of the server; its counts are there at the end of the block."""
    pipe = asyncio.subprocess.PIPE
    words = (sys.executable, "-m", "tests.component.signals.busy_api_server", str(SEATS))
    process = await asyncio.create_subprocess_exec(*words, stdin=pipe, stdout=pipe)
    assert process.stdin is not None
    assert process.stdout is not None
    try:
        yield int(await process.stdout.readline())
        process.stdin.close()
        counts.update(json.loads(await process.stdout.readline()))
        await process.wait()
    finally:
        if process.returncode is None:
            process.kill()
            await process.wait()


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
@pytest.mark.timeout(600)
async def test_all_pods_are_told_within_a_minute(tmp_path: Path) -> None:
    """None twice and none never; the server is asked for no more at a time than the share, and again not for ever."""
    counts: dict[str, int] = {}
    async with busy_api_server(counts) as port:
        kubeconfig = tmp_path / "kubeconfig"
        user, cluster = {"user": {"token": "t"}}, {"cluster": {"server": f"http://127.0.0.1:{port}"}}
        kubeconfig.write_text(json.dumps({"clusters": [cluster], "users": [user]}))
        agents = [Agent(f"node-{number:03}", kubeconfig) for number in range(AGENTS)]
        async with running(agents):
            began = time.monotonic()
            for agent in agents:
                agent.break_gpus()
            with anyio.move_on_after(2 * LIMIT_SECONDS):
                for agent in agents:
                    await agent.wait_told()
            took = time.monotonic() - began
    failed = [agent.counts.failed for agent in agents]
    sys.stdout.write(
        f"{took:.1f} s for {AGENTS * GPUS} events; {counts}; failures of an agent: {max(failed)} at most\n"
    )
    assert (counts["events"], counts["pods"], counts["most"]) == (AGENTS * GPUS, AGENTS * GPUS, SEATS)
    assert sum(agent.counts.dropped for agent in agents) == 0
    assert max(failed) <= TRIES * GPUS
    assert took <= LIMIT_SECONDS
