"""The runtime component, wired to a runtime that does as the test says."""

from collections.abc import AsyncIterator, Callable, Coroutine
from contextlib import asynccontextmanager
from typing import Any

import anyio
from anyio.abc import TaskGroup
from msgspec.structs import replace

from nodeagent.components.runtime.component import Runtime
from nodeagent.config.live import LiveSettings
from nodeagent.config.schema import Settings
from nodeagent.core.channels.bus import Bus
from nodeagent.core.conditions import Conditions
from nodeagent.model.conditions import CATALOGUE
from nodeagent.model.events import ConfigurationReloaded
from nodeagent.model.runtime import RuntimeState
from tests.component.runtime.fakes import FakeRuntime
from tests.support.virtual_time import FakeClock

COMMAND = "systemctl restart containerd.service"


class Surroundings:
    def __init__(self, runtime: FakeRuntime, **settings: Any) -> None:
        self.clock = FakeClock()
        self.bus = Bus(self.clock)
        self.conditions = Conditions(self.bus, self.clock, CATALOGUE)
        self.runtime = runtime
        self.live = LiveSettings(Settings())
        self.configure(**settings)

    def configure(self, **settings: Any) -> None:
        self.live.replace(replace(self.live.now, runtime=replace(self.live.now.runtime, **settings)))
        self.bus.publish_fact(ConfigurationReloaded(changed=tuple(settings)), source="test")

    @asynccontextmanager
    async def running(self) -> AsyncIterator[None]:
        component = Runtime(self.bus, self.conditions, self.clock, self.live, self.runtime)
        async with anyio.create_task_group() as tasks:
            await tasks.start(lambda *, task_status: component.run(task_status=task_status))
            yield
            tasks.cancel_scope.cancel()

    @asynccontextmanager
    async def running_beside(
        self, act: Callable[[], Coroutine[None, None, None]], tasks: TaskGroup
    ) -> AsyncIterator[None]:
        tasks.start_soon(act)
        async with self.running():
            yield

    @property
    def state(self) -> RuntimeState:
        envelope = self.bus.latest(RuntimeState)
        assert envelope is not None
        return envelope.value

    @property
    def found(self) -> dict[str, str]:
        return {condition.code: condition.detail for condition in self.conditions.all_set()}
