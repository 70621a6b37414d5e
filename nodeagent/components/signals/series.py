"""The events on pods that are to be written: one for each pod, device and number, and when to write which.

Owns the limits. A fault that repeats is counted on its one event, at most once in `AGAIN_SECONDS`. New events are
written at once, `NEW_MAX` of them in `PERIOD_SECONDS`. An event that cannot be written is kept for `KEEP_SECONDS`.
The pauses between tries are drawn at random: agents that were refused together do not come back together.
"""

from collections import deque
from collections.abc import Callable
from typing import Final

from msgspec.structs import replace

from nodeagent.model.cluster import EventSeries, NodeEvent, PodEventCounts, PodWriteCounts
from nodeagent.model.values import Value

AGAIN_SECONDS: Final = 10.0
NEW_MAX: Final = 256
PERIOD_SECONDS: Final = 600.0
KEEP_SECONDS: Final = 600.0
FORGET_SECONDS: Final = 3600.0
"""The API server forgets events after an hour without a change."""
AT_ONCE: Final = 16
"""Requests under way at a time."""
_REST_SECONDS = 0.001
"""The shortest wait: a smaller rest of a time may not move the clock."""

NO_EVENTS: Final = PodEventCounts()

Key = tuple[str, str, str]
"""Pod, reason, and what the event is about."""


class Standing(Value, frozen=True):
    """A series, and how far the API server knows of it."""

    series: EventSeries
    since_seconds: float
    """When the oldest unwritten fault was seen."""
    written: int = 0
    """The number of times in the API server."""
    again_seconds: float = 0.0
    """Before then the series is not written."""
    attempts: int = 0

    @property
    def key(self) -> Key:
        """The key of the series: pod, reason and device."""
        return find_key(self.series.event)

    @property
    def is_waiting(self) -> bool:
        """Whether the API server has yet to be told."""
        return self.series.count > self.written


def find_key(event: NodeEvent) -> Key:
    """The key of an event's series: pod, reason and device."""
    return (event.pod.uid if event.pod is not None else "", event.reason, event.about)


class SeriesStore:
    """All series of the node; knows no clock and makes no request."""

    def __init__(
        self,
        decide_pause: Callable[[int], float],
        counts: PodWriteCounts = NO_EVENTS,
        *,
        counts_repetitions: bool = True,
    ) -> None:
        """`decide_pause` takes the failures in a row; without `counts_repetitions` a series is written once."""
        self._decide_pause, self._counts_repetitions = decide_pause, counts_repetitions
        self._standings: dict[Key, Standing] = {}
        self._new: deque[float] = deque()
        self._not_before, self._failures = 0.0, 0
        self._trouble, self._trouble_at = "", 0.0
        self._counts = counts

    @property
    def counts(self) -> PodWriteCounts:
        """The counts so far."""
        return replace(self._counts, waiting=sum(each.is_waiting for each in self._standings.values()))

    def note(self, event: NodeEvent, wall_seconds: float, now_seconds: float) -> bool:
        """Take an event of now; returns whether it will be written."""
        assert event.pod is not None
        known = self._standings.get(find_key(event))
        if known is not None and not self._counts_repetitions:
            return True
        if known is not None:
            series = replace(known.series, count=known.series.count + 1, last_seconds=wall_seconds)
            since = known.since_seconds if known.is_waiting else now_seconds
            self._standings[known.key] = replace(known, series=series, since_seconds=since)
            return True
        while self._new and now_seconds - self._new[0] >= PERIOD_SECONDS:
            self._new.popleft()
        if len(self._new) >= NEW_MAX:
            self._counts = replace(self._counts, dropped=self._counts.dropped + 1)
            return False
        self._new.append(now_seconds)
        series = EventSeries(event=event, pod=event.pod, first_seconds=wall_seconds, last_seconds=wall_seconds)
        self._standings[find_key(event)] = Standing(series=series, since_seconds=now_seconds)
        return True

    def take_due(self, now_seconds: float) -> tuple[Standing, ...]:
        """The series to be written now, new series first, then the longest unwritten."""
        if now_seconds < self._not_before:
            return ()
        due = [each for each in self._standings.values() if each.is_waiting and each.again_seconds <= now_seconds]
        return tuple(sorted(due, key=lambda each: (each.written > 0, each.since_seconds))[:AT_ONCE])

    def find_wait(self, now_seconds: float) -> float | None:
        """The seconds until a series is due, or is given up; `None` until news."""
        waiting = [each for each in self._standings.values() if each.is_waiting]
        times = [min(max(each.again_seconds, self._not_before), each.since_seconds + KEEP_SECONDS) for each in waiting]
        if self._trouble:
            times.append(self._trouble_at + KEEP_SECONDS)
        return max(_REST_SECONDS, min(times) - now_seconds) if times else None

    def note_written(self, standing: Standing, now_seconds: float) -> None:
        """The API server has the series as it was."""
        known = self._standings[standing.key]
        self._standings[standing.key] = replace(
            known,
            series=replace(known.series, is_written=True),
            written=standing.series.count,
            since_seconds=now_seconds,
            again_seconds=now_seconds + AGAIN_SECONDS,
            attempts=0,
        )
        self._not_before, self._failures, self._trouble = 0.0, 0, ""
        self._counts = replace(self._counts, written=self._counts.written + 1)

    def note_failed(self, standing: Standing, trouble: str, now_seconds: float, *, is_final: bool) -> None:
        """A request for the series failed; a final refusal is not asked for again."""
        self._trouble, self._trouble_at = trouble, now_seconds
        self._counts = replace(self._counts, failed=self._counts.failed + 1)
        if is_final:
            self._drop(standing.key)
            return
        known = self._standings[standing.key]
        attempts = known.attempts + 1
        pause = self._decide_pause(attempts)
        self._standings[standing.key] = replace(known, attempts=attempts, again_seconds=now_seconds + pause)

    def note_away(self, now_seconds: float) -> None:
        """None of several requests succeeded: the next ones wait."""
        self._failures += 1
        self._not_before = now_seconds + self._decide_pause(self._failures)

    def forget_old(self, now_seconds: float) -> tuple[Standing, ...]:
        """Give up what could not be written in time, and forget what is long over; returns the given up series."""
        late = tuple(
            each
            for each in self._standings.values()
            if each.is_waiting and now_seconds - each.since_seconds >= KEEP_SECONDS
        )
        for each in late:
            self._drop(each.key)
        over = [
            key
            for key, each in self._standings.items()
            if not each.is_waiting and now_seconds - each.since_seconds >= FORGET_SECONDS
        ]
        for key in over:
            del self._standings[key]
        if now_seconds - self._trouble_at >= KEEP_SECONDS:
            self._trouble = ""
        return late

    def describe_trouble(self) -> str:
        """The detail of the condition: the last refusal, until another write succeeds or the refusal is old."""
        return self._trouble

    def _drop(self, key: Key) -> None:
        self._counts = replace(self._counts, dropped=self._counts.dropped + 1)
        del self._standings[key]
