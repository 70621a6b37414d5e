"""The watch for driver reports, kept up across new workers, failed waits, and GPUs that come back.

Owns registration and pauses between registrations. Refuses to guess missed reports: after each gap every watched GPU is
named, so that the health component polls the levels.
"""

from collections.abc import AsyncGenerator, Mapping

import anyio

from nodeagent.core.life.ticker import until_beat
from nodeagent.core.log.lines import get_logger
from nodeagent.edge.nvml.agent import protocol
from nodeagent.edge.nvml.agent.asker import Asker, GpuSilent
from nodeagent.edge.nvml.agent.connection import Connection, RequestFailed
from nodeagent.edge.nvml.agent.protocol import Report, Request, render_event
from nodeagent.edge.nvml.errors import NOT_SUPPORTED
from nodeagent.model.errors import DriverReleased, DriverUnavailable
from nodeagent.model.events import GpuEventReported
from nodeagent.model.gpu import Gpu
from nodeagent.model.ids import GpuUuid
from nodeagent.model.ports import GpuEvent

WATCH_RESUMED = "watch_resumed"
"""Kind of the event that says: others may have been missed, look at this GPU's levels."""

_FIRST_PAUSE_SECONDS, _LONGEST_PAUSE_SECONDS = 1.0, 30.0
_POLL_INTERVAL_SECONDS = 2.0
"""How soon a GPU that is new, or answers again, is watched too."""


class EventStream:
    """One iteration over the events of all GPUs."""

    def __init__(self, connection: Connection, asker: Asker, gpus: Mapping[int, Gpu]) -> None:
        self._connection, self._asker, self._gpus = connection, asker, gpus
        self._watched: set[GpuUuid] = set()
        self._mute: set[GpuUuid] = set()
        """Those that report nothing by nature."""
        self._reasons: dict[GpuUuid, str] = {}
        self._opening = -1
        self._pause = _FIRST_PAUSE_SECONDS
        self._log = get_logger(component="nvml")

    async def run(self) -> AsyncGenerator[GpuEvent, None]:
        """Every event, until the driver is released or no GPU can be watched.

        Raises:
            DriverError: The watch ended.
        """
        await self._register_missing()
        while True:
            report = await self._wait_report()
            if self._connection.released:
                raise DriverReleased(self._connection.released)
            event = render_event(report)
            if event is not None:
                self._pause = _FIRST_PAUSE_SECONDS
                yield event
            if report.ended is not None:
                await self._sit_out(report.ended)
            for uuid in await self._register_missing():
                yield GpuEventReported(gpu=uuid, kind=WATCH_RESUMED)

    async def _wait_report(self) -> Report:
        """The worker's next report; an empty report as a sign to check the registrations."""
        payload: bytes | None = None
        with anyio.move_on_after(until_beat(_POLL_INTERVAL_SECONDS)):
            payload = await self._connection.wait_said()
        return Report() if payload is None else protocol.REPORT.decode(payload)

    async def _sit_out(self, code: int) -> None:
        """The wait for events failed, and the set of all GPUs with it: pause, longer each time, then begin anew."""
        self._log.warning("gpu_event_wait_failed", code=code, retry_seconds=self._pause)
        self._watched.clear()
        await anyio.sleep(self._pause)
        self._pause = min(2 * self._pause, _LONGEST_PAUSE_SECONDS)

    async def _register_missing(self) -> list[GpuUuid]:
        """Register every unwatched GPU that answers; the UUIDs of newly watched GPUs.

        Raises:
            DriverUnavailable: No GPU is watched, and no GPU can be.
        """
        if self._opening != self._connection.opened:
            self._watched.clear()
        before = set(self._watched)
        reason = "there is no GPU"
        known = dict(self._gpus)
        for index in self._asker.plan_order(known):
            gpu = known[index]
            if gpu.uuid in self._watched or gpu.uuid in self._mute:
                continue
            try:
                await self._register(index, gpu)
            except (RequestFailed, GpuSilent) as error:
                reason = str(error)
        self._opening = self._connection.opened
        if not self._watched:
            raise DriverUnavailable("watch GPU events", reason)
        return [gpu.uuid for _, gpu in sorted(known.items()) if gpu.uuid in self._watched - before]

    async def _register(self, index: int, gpu: Gpu) -> None:
        request = Request(do="watch", gpu=gpu.pci.address, uuid=gpu.uuid)
        opening = self._connection.opened
        try:
            await self._asker.ask(index, request, protocol.WATCHED, "registering for events of")
        except (RequestFailed, GpuSilent) as error:
            if isinstance(error, RequestFailed) and error.failure.code == NOT_SUPPORTED:
                self._mute.add(gpu.uuid)
            if self._reasons.get(gpu.uuid) != str(error):  # it is tried again and again, and told once
                self._log.warning("gpu_events_unwatched", gpu=gpu.uuid, reason=str(error))
            self._reasons[gpu.uuid] = str(error)
            raise
        if opening != self._connection.opened:
            self._watched.clear()  # a new worker in the middle of it: those before have to be registered again
        self._reasons.pop(gpu.uuid, None)
        self._watched.add(gpu.uuid)
