"""Measures the containers' use of their fractions, once for all readers.

Owns the published `FractionUsage`. Refuses to sample: divides the inventory's samples, and reports nothing of an old
sample. The container runtime is asked at most once in ten seconds, and only where the pod alone does not identify the
container.
"""

import math
from collections.abc import Awaitable, Callable, Mapping
from typing import Any, Final

import anyio
from anyio.abc import TaskStatus

from nodeagent.components.usage.measure import list_over, list_processes, list_unnamed, list_unseen, measure
from nodeagent.components.usage.watchdog_task import Watchdog
from nodeagent.core.channels.bus import Bus
from nodeagent.core.channels.envelope import Envelope
from nodeagent.core.channels.mailbox import Waker
from nodeagent.core.channels.news import News
from nodeagent.core.clock import Clock
from nodeagent.core.conditions import Conditions
from nodeagent.core.log.lines import get_logger
from nodeagent.model.errors import NodeagentError
from nodeagent.model.fractions import PodContainer
from nodeagent.model.gpu import Inventory
from nodeagent.model.ids import GpuUuid
from nodeagent.model.journal import FractionTable
from nodeagent.model.ports import ProcessPlace, ProcessPlaces
from nodeagent.model.telemetry import NodeSample
from nodeagent.model.usage import FractionUsage

GATHER_SECONDS: Final = 0.25
"""How long changes are gathered: a round looks at all containers, and containers that start then share the loop."""
NAMES_SECONDS: Final = 10.0
"""Between two lists of the container runtime."""
_NOBODY: Final = FractionTable()
Listing = Callable[[], Awaitable[tuple[PodContainer, ...]]]


class Usage:
    """The component."""

    name = "usage"

    def __init__(
        self,
        bus: Bus,
        conditions: Conditions,
        clock: Clock,
        *,
        places: ProcessPlaces | None = None,
        list_containers: Listing | None = None,
        watchdog: Watchdog | None = None,
    ) -> None:
        """`places`, the container runtime's listing and the watchdog are missing where processes are made up."""
        self._bus, self._conditions, self._clock = bus, conditions, clock
        self._places, self._list, self._watchdog = places, list_containers, watchdog
        self._waker, self._unnamed, self._news = Waker(), Waker(), News()
        self._names: Mapping[str, PodContainer] = {}
        self._placed: Mapping[int, ProcessPlace] = {}
        self._problem = ""
        self._log = get_logger(component=self.name)

    async def run(self, *, task_status: TaskStatus[None]) -> None:
        """Measure each sample, until cancelled."""
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(
                self._waker.follow,
                self._bus.watch_all(NodeSample, FractionTable, Inventory, client=self.name),
                name="usage states",
            )
            if self._list is not None:
                tasks.start_soon(self._ask_names, self._list, name="usage names")
            task_status.started()
            while True:
                rest_seconds = await self._refresh()
                with anyio.move_on_after(rest_seconds):
                    await self._waker.wait()
                    await anyio.sleep(GATHER_SECONDS)

    async def _refresh(self) -> float:
        """Publish the use of all containers; returns the seconds until the sample grows old."""
        fractions, inventory = self._bus.latest(FractionTable), self._bus.latest(Inventory)
        sampled = self._bus.latest(NodeSample)
        table = fractions.value if fractions is not None else _NOBODY
        sample, rest_seconds = self._look(sampled)
        if not table.bindings:
            # Nothing here changes each second: without fractions a round costs no more than this check.
            self._report_unseen({})
            self._conditions.replace("part-over-memory", {})
            self._publish(FractionUsage(), fractions)
            return rest_seconds
        if sample is not None:
            self._placed = await self._find_places(table, sample)
            if self._places is not None:
                self._report_unseen(list_unseen(table, sample, self._placed))
            if list_unnamed(table, sample, self._placed, self._names):
                self._unnamed.wake()
        usage = measure(table, self._bus.read(Inventory), sample, self._placed, self._names)
        self._publish(usage, sampled, fractions, inventory)
        if sample is not None:
            self._conditions.replace("part-over-memory", list_over(usage))
            if self._watchdog is not None:
                await self._watchdog.look(usage, sample, self._placed)
        return rest_seconds

    def _publish(self, usage: FractionUsage, *reasons: Envelope[Any] | None) -> None:
        self._bus.publish_state(usage, source=self.name, cause=self._news.take(*reasons))

    def _look(self, sampled: Envelope[NodeSample] | None) -> tuple[NodeSample | None, float]:
        """The sample while fresh, and for how many seconds more."""
        if sampled is None:
            return None, math.inf
        rest_seconds = sampled.value.time_seconds + sampled.value.fresh_seconds - self._clock.wall()
        return (None, math.inf) if rest_seconds <= 0 else (sampled.value, rest_seconds)

    async def _find_places(self, table: FractionTable, sample: NodeSample) -> Mapping[int, ProcessPlace]:
        if self._places is None:
            return {}
        return await self._places.read_places(list_processes(table, sample))

    def _report_unseen(self, unseen: Mapping[GpuUuid, int]) -> None:
        details = {str(gpu): f"none of its {count} processes is seen from here" for gpu, count in unseen.items()}
        self._conditions.replace("part-use-unseen", details)

    async def _ask_names(self, list_containers: Listing) -> None:
        while True:
            await self._unnamed.wait()
            problem = ""
            try:
                self._names = {each.id: each for each in await list_containers()}
            except NodeagentError as error:
                problem = str(error)
            if problem and problem != self._problem:
                self._log.warning("containers_not_named", reason=problem)
            self._problem = problem
            self._waker.wake()
            await anyio.sleep(NAMES_SECONDS)
