"""The watch over what the driver reports by itself, kept up across new workers and failed waits.

Owns registration and its pauses. Refuses to guess what was missed: after each gap it names every GPU, so that whoever
judges health looks at the levels again.
"""

from collections.abc import AsyncGenerator, Mapping

import anyio

from nodeagent.edge.nvml import protocol
from nodeagent.edge.nvml.asker import Asker, GpuSilent
from nodeagent.edge.nvml.connection import Connection, RequestFailed
from nodeagent.edge.nvml.errors import NOT_SUPPORTED
from nodeagent.edge.nvml.protocol import Report, Request, render_event
from nodeagent.kernel.log import get_logger
from nodeagent.model.errors import DriverReleased, DriverUnavailable
from nodeagent.model.events import GpuEventReported
from nodeagent.model.gpu import Gpu
from nodeagent.model.ids import GpuUuid
from nodeagent.model.ports import GpuEvent

WATCH_RESUMED = "watch_resumed"
"""Kind of the event that says: others may have been missed, look at this GPU's levels."""

_FIRST_PAUSE_SECONDS, _LONGEST_PAUSE_SECONDS = 1.0, 30.0


async def watch_events(connection: Connection, asker: Asker, gpus: Mapping[int, Gpu]) -> AsyncGenerator[GpuEvent, None]:
    """Every event of the GPUs, until the driver is released or none of them can be watched.

    Raises:
        DriverError: it ended.
    """
    await _register(asker, gpus)
    opening, pause = connection.opened, _FIRST_PAUSE_SECONDS
    while True:
        payload = await connection.wait_said()
        if connection.released:
            raise DriverReleased(connection.released)
        report = protocol.REPORT.decode(payload) if payload is not None else Report()
        if report.gpu is not None:
            pause = _FIRST_PAUSE_SECONDS
            event = render_event(report)
            if event is not None:
                yield event
            continue
        if report.ended is not None:
            get_logger(component="nvml").warning("gpu_event_wait_failed", code=report.ended, retry_seconds=pause)
            await anyio.sleep(pause)
            pause = min(2 * pause, _LONGEST_PAUSE_SECONDS)
        elif opening == connection.opened:
            continue  # an opening that this watch has already registered with
        resumed = await _register(asker, gpus)
        opening = connection.opened
        for uuid in resumed:
            yield GpuEventReported(gpu=uuid, kind=WATCH_RESUMED)


async def _register(asker: Asker, gpus: Mapping[int, Gpu]) -> list[GpuUuid]:
    """Register every GPU that can be asked; the UUIDs of those that are watched now.

    Raises:
        DriverUnavailable: not one of them can be watched.
    """
    watched: list[GpuUuid] = []
    reason = "there is no GPU"
    for index in asker.plan_order(gpus):
        gpu = gpus[index]
        request = Request(do="watch", gpu=gpu.pci.address, uuid=gpu.uuid)
        try:
            await asker.ask(index, request, protocol.WATCHED, "registering for events of")
            watched.append(gpu.uuid)
        except (RequestFailed, GpuSilent) as error:
            reason = str(error)
            if not (isinstance(error, RequestFailed) and error.failure.code == NOT_SUPPORTED):
                get_logger(component="nvml").warning("gpu_events_unwatched", gpu=gpu.uuid, reason=reason)
    if not watched:
        raise DriverUnavailable("watch GPU events", reason)
    return watched
