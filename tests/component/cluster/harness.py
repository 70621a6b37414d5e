"""The cluster component between the bus and a node in a cluster."""

from collections.abc import AsyncGenerator, AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from random import Random
from typing import Any

import anyio

from nodeagent.components.cluster.component import Cluster
from nodeagent.config.live import LiveSettings
from nodeagent.config.schema import Settings
from nodeagent.config.sections.cluster import KubernetesSettings
from nodeagent.config.sections.plugin import DevicePluginSettings
from nodeagent.core.channels.bus import Bus
from nodeagent.core.conditions import Conditions
from nodeagent.model.cluster import PodLabelTable
from nodeagent.model.conditions import CATALOGUE
from nodeagent.model.driver import DriverPhase, DriverState
from nodeagent.model.errors import ControlRefused, NodeagentError
from nodeagent.model.offering import Door
from tests.fakes.node_api import FakeNodeApi
from tests.support.gpus import make_gpu, make_inventory
from tests.support.virtual_time import FakeClock

READY = DriverState(phase=DriverPhase.READY)
STUCK = DriverState(phase=DriverPhase.STUCK, detail="nvmlInit")
GONE = NodeagentError("the server does not answer")


class FakeControl:
    """Does as told and remembers it; refuses while `refusal` is set."""

    def __init__(self) -> None:
        self.done: list[str] = []
        self.refusal: ControlRefused | None = None

    async def reload(self) -> str:
        raise AssertionError("nobody asked for a reload")

    async def inject_fault(self, fault: str, arguments: object) -> str:
        raise AssertionError("nobody asked for a fault")

    async def crash_component(self, name: str, reason: str) -> str:
        raise AssertionError("nobody asked for a crash")

    async def clear_gpu(self, name: str, reason: str, who: str) -> str:
        raise AssertionError("nobody asked for a GPU to be cleared")

    async def forget_gpu(self, name: str, who: str) -> str:
        raise AssertionError("nobody asked for a GPU to be forgotten")

    async def set_door(self, name: str, door: Door | None, who: str) -> str:
        raise AssertionError("nobody asked for another door")

    async def release(self, reason: str, seconds: float | None) -> str:
        if self.refusal is not None:
            raise self.refusal
        self.done.append(f"release {reason}")
        return ""

    async def resume(self) -> str:
        self.done.append("resume")
        return ""

    async def follow_label(self, label: str, *, cause: int | None = None) -> str:
        if self.refusal is not None or label not in ("", "plain", "shared"):
            raise self.refusal or ControlRefused(f"no configuration {label}")
        self.done.append(f"use {label}")
        return ""


class FakePods:
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
    """The component with everything round it."""

    def __init__(self, clock: FakeClock, *, named: bool = False, **kubernetes: Any) -> None:
        self.bus = Bus(clock)
        self.conditions = Conditions(self.bus, clock, CATALOGUE)
        plugin = DevicePluginSettings(config_dir=Path("/configs") if named else None)
        self.live = LiveSettings(Settings(kubernetes=KubernetesSettings(**kubernetes), device_plugin=plugin))
        self.api, self.pods, self.control = FakeNodeApi(), FakePods(), FakeControl()
        self._clock = clock

    @asynccontextmanager
    async def running(self) -> AsyncIterator["Stage"]:
        cluster = Cluster(
            self.bus,
            self.conditions,
            self._clock,
            self.live,
            self.api,
            self.control,
            self.control,
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
