"""Whether a log line is written or only counted; pure, time comes from the caller.

A repeated event is written a few times, then counted, and written again now and then with the number of repetitions
and the time of the first. The first line of an event is always written, however many other events are counted.
Memory is bounded: beyond the limit of different events, the least recent event is forgotten, after a summary of the
counted repetitions.
"""

from collections.abc import Hashable, Mapping
from typing import Any, Final, NamedTuple

EVENTS_MAX: Final = 512
BURST: Final = 5
"""Written one by one: a handful of repetitions is news each time."""
FIRST_SECONDS: Final = 10.0
LONGEST_SECONDS: Final = 600.0
"""Between two summaries of an unending event; the intervals double from the first up to this limit."""

Line = Mapping[str, Any]


class Count(NamedTuple):
    """The number of unwritten repetitions, and the start of counting."""

    more: int
    since: float


class Summary(NamedTuple):
    """The summary of counted repetitions; `line` is the last repetition."""

    line: Line
    counted: Count


class _Heard:
    """The state of one event."""

    __slots__ = ("began", "last", "more", "seconds", "told")

    def __init__(self, now: float) -> None:
        self.began = now
        self.seconds = FIRST_SECONDS
        self.told = 1
        self.more = 0
        self.last: Line = {}


class Repeats:
    """The events of one process."""

    def __init__(self) -> None:
        self._heard: dict[Hashable, _Heard] = {}
        self._forgotten: list[Summary] = []

    def hear(self, identity: Hashable, line: Line, now: float) -> Count | None:
        """The repetitions to write with the line; `None` for a line that is only counted."""
        heard = self._heard.pop(identity, None)
        if heard is None or (now >= heard.began + heard.seconds and not heard.more):
            self._make_room()
            self._heard[identity] = _Heard(now)
            return Count(0, now)
        self._heard[identity] = heard  # the newest is last: the first event is forgotten first
        if now < heard.began + heard.seconds:
            if heard.told < BURST:
                heard.told += 1
                return Count(0, now)
            heard.more += 1
            heard.last = line
            return None
        return _tell(heard, now)

    def collect(self, now: float) -> list[Summary]:
        """The summaries due now, without a new line; quiet events are forgotten."""
        summaries = self.take_forgotten()
        for identity, heard in list(self._heard.items()):
            if now >= heard.began + heard.seconds:
                if heard.more:
                    summaries.append(Summary(heard.last, _tell(heard, now)))
                else:
                    del self._heard[identity]
        return summaries

    def close(self) -> list[Summary]:
        """The summaries of all counted repetitions; all events are forgotten."""
        left = [Summary(heard.last, Count(heard.more, heard.began)) for heard in self._heard.values() if heard.more]
        self._heard.clear()
        return [*self.take_forgotten(), *left]

    def take_forgotten(self) -> list[Summary]:
        """The summaries of events that had to make room, handed over once."""
        summaries, self._forgotten = self._forgotten, []
        return summaries

    def __len__(self) -> int:
        return len(self._heard)

    def _make_room(self) -> None:
        if len(self._heard) < EVENTS_MAX:
            return
        oldest = self._heard.pop(next(iter(self._heard)))
        if oldest.more:
            self._forgotten.append(Summary(oldest.last, Count(oldest.more, oldest.began)))


def _tell(heard: _Heard, now: float) -> Count:
    """Count anew, for twice as long; one summary stands for the whole time."""
    count = Count(heard.more, heard.began)
    heard.began, heard.more, heard.told = now, 0, BURST
    heard.seconds = min(2 * heard.seconds, LONGEST_SECONDS)
    return count
