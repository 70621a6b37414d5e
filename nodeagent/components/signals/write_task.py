"""Writes to the API server what pods are told, by events and conditions: when, how often, and again after failures.

Owns the rounds of writes, and the log lines about them.
Refuses to know what is written: a store has the limits, and `write` makes the request.
"""

from collections.abc import Awaitable, Callable
from typing import Final

import anyio

from nodeagent.components.signals.series import SeriesStore, Standing
from nodeagent.core.channels.mailbox import Waker
from nodeagent.core.clock import Clock
from nodeagent.core.log.lines import get_logger
from nodeagent.edge.kube.errors import ApiInvalid, ApiNotFound
from nodeagent.model.cluster import EventSeries, NodeEvent
from nodeagent.model.errors import NodeagentError

_FINAL: Final = (ApiInvalid, ApiNotFound)
"""Refusals of what is written, and of its namespace; another try has the same answer."""


class PodWriter:
    """The writer of one kind of news for pods."""

    def __init__(
        self,
        what: str,
        store: SeriesStore,
        write: Callable[[EventSeries], Awaitable[None]],
        show_trouble: Callable[[str], None],
        clock: Clock,
    ) -> None:
        """`what` begins the names of log lines, and `show_trouble` tells why the last write failed."""
        self._what, self.store, self._send, self._show_trouble = what, store, write, show_trouble
        self._clock = clock
        self._waker = Waker()
        self._log = get_logger(component="signals")

    def note(self, event: NodeEvent) -> None:
        """Have an event of now written."""
        assert event.pod is not None
        if not self.store.note(event, self._clock.wall(), self._clock.monotonic()):
            self._log.warning(f"{self._what}_dropped", pod=event.pod.describe(), event_reason=event.reason)
        self._waker.wake()

    async def write_forever(self, publish: Callable[[], None]) -> None:
        """Write what is due until cancelled; `publish` is called after each round."""
        while True:
            await self._write_due()
            for late in self.store.forget_old(self._clock.monotonic()):
                event = late.series.event
                self._log.warning(f"{self._what}_dropped", pod=late.series.pod.describe(), event_reason=event.reason)
            publish()
            self._show_trouble(self.store.describe_trouble())
            with anyio.move_on_after(self.store.find_wait(self._clock.monotonic())):
                await self._waker.wait()

    async def _write_due(self) -> None:
        while due := self.store.take_due(self._clock.monotonic()):
            before = self.store.counts.written
            async with anyio.create_task_group() as tasks:
                for each in due:
                    tasks.start_soon(self._write, each, name="signals write")
            if self.store.counts.written == before:
                self.store.note_away(self._clock.monotonic())

    async def _write(self, standing: Standing) -> None:
        series = standing.series
        try:
            await self._send(series)
        except NodeagentError as error:
            is_final = isinstance(error, _FINAL)
            self._log.warning(
                f"{self._what}_not_written", pod=series.pod.describe(), reason=str(error), is_tried_again=not is_final
            )
            self.store.note_failed(standing, str(error), self._clock.monotonic(), is_final=is_final)
            return
        self.store.note_written(standing, self._clock.monotonic())
        if not series.is_written:
            self._log.info(f"{self._what}_written", pod=series.pod.describe(), note=series.event.note)
