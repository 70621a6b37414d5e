"""An exporter and all it needs."""

from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager
from typing import Any

import anyio
from msgspec.structs import replace

from nodeagent.components.exporter.component import AgentCounts, AgentFactsSource, Exporter
from nodeagent.config.live import LiveSettings
from nodeagent.config.schema import Settings
from nodeagent.core.channels.bus import Bus
from nodeagent.core.conditions import Conditions
from nodeagent.core.introspect import Introspection
from nodeagent.core.life.gates import Gates
from nodeagent.model.conditions import CATALOGUE
from nodeagent.model.ports import ProcessPlace
from nodeagent.model.telemetry import GpuSample
from tests.support.samples import make_uuid
from tests.support.texts.exposition import Series, read_text
from tests.support.virtual_time import FakeClock
from tests.unit.components.exporter.builders import (
    know,
    make_node,
)

UUID = make_uuid(0)


class Places:
    """Answers where processes live, and remembers who was asked for."""

    def __init__(self, places: Mapping[int, ProcessPlace]) -> None:
        self.places = places
        self.asked: list[tuple[int, ...]] = []

    async def read_places(self, pids: Sequence[int]) -> Mapping[int, ProcessPlace]:
        self.asked.append(tuple(pids))
        return self.places


class Bench:
    """An exporter and all it needs."""

    def __init__(self, clock: FakeClock, places: Places | None = None, **metrics: Any) -> None:
        self.clock, self.bus = clock, Bus(clock)
        settings = Settings()
        self.live = LiveSettings(replace(settings, metrics=replace(settings.metrics, **metrics)))
        self.conditions = Conditions(self.bus, clock, CATALOGUE)
        self.wanted: list[tuple[str, ...]] = []
        agent = AgentFactsSource(
            self.bus,
            Gates(("driver_ready",), clock=clock),
            self.conditions,
            clock,
            Introspection(),
            AgentCounts(tuple),
            version="1.2.3",
            started_seconds=clock.wall(),
        )
        self.exporter = Exporter(
            self.bus, self.conditions, clock, self.live, agent, places, host="node-a", want=self.wanted.append
        )

    @asynccontextmanager
    async def running(self) -> AsyncIterator[None]:
        async with anyio.create_task_group() as tasks:
            await tasks.start(lambda *, task_status: self.exporter.run(task_status=task_status))
            yield
            tasks.cancel_scope.cancel()

    async def publish(self, *gpus: GpuSample, known: Any = None) -> None:
        """One sample of a node, and the time to render it."""
        known = known or know(gpus=max(1, len(gpus)))
        self.bus.publish_state(known.inventory, source="inventory")
        self.bus.publish_state(known.driver, source="driver")
        self.bus.publish_state(known.allocations, source="allocations")
        self.bus.publish_state(make_node(*gpus, seconds=self.clock.wall()), source="inventory")
        await anyio.sleep(0.1)

    def read(self) -> Series:
        return read_text(self.exporter.render().decode())
