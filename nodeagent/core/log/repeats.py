"""Which log lines are written and which only counted; pure, time is the caller's.

An event that repeats is told a few times, then counted, and told again now and then with how many times more it has
happened since when. What is told for the first time is never counted away, however many others are.
Memory is bounded: of more different events than fit, those that were heard of longest ago are forgotten, after what
was counted of them has been told.
"""

from collections.abc import Hashable, Mapping
from typing import Any, Final, NamedTuple

EVENTS_MAX: Final = 512
BURST: Final = 5
"""Told one by one: what happens a handful of times is news each time."""
FIRST_SECONDS: Final = 10.0
LONGEST_SECONDS: Final = 600.0
"""Between two tellings of what goes on and on; the times between double from the first up to this."""

Line = Mapping[str, Any]


class Count(NamedTuple):
    """How many times more than was told, and since when."""

    more: int
    since: float


class Summary(NamedTuple):
    """Something to be told again for those times that were only counted; `line` is the last of them."""

    line: Line
    counted: Count


class _Heard:
    """What is known of one event."""

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
        """How often the line is to be told to have happened besides; None: it is counted, and not written now."""
        heard = self._heard.pop(identity, None)
        if heard is None or (now >= heard.began + heard.seconds and not heard.more):
            self._make_room()
            self._heard[identity] = _Heard(now)
            return Count(0, now)
        self._heard[identity] = heard  # the newest is last: what stands first is forgotten first
        if now < heard.began + heard.seconds:
            if heard.told < BURST:
                heard.told += 1
                return Count(0, now)
            heard.more += 1
            heard.last = line
            return None
        return _tell(heard, now)

    def collect(self, now: float) -> list[Summary]:
        """What was counted and is to be told now though nothing new has come; what has gone quiet is forgotten."""
        summaries = self.take_forgotten()
        for identity, heard in list(self._heard.items()):
            if now >= heard.began + heard.seconds:
                if heard.more:
                    summaries.append(Summary(heard.last, _tell(heard, now)))
                else:
                    del self._heard[identity]
        return summaries

    def close(self) -> list[Summary]:
        """All that was counted and not told; everything is forgotten."""
        left = [Summary(heard.last, Count(heard.more, heard.began)) for heard in self._heard.values() if heard.more]
        self._heard.clear()
        return [*self.take_forgotten(), *left]

    def take_forgotten(self) -> list[Summary]:
        """What was counted of events that had to make room: to be told at once, here it is kept no longer."""
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
    """Count anew, for twice as long; one telling stands for the whole time."""
    count = Count(heard.more, heard.began)
    heard.began, heard.more, heard.told = now, 0, BURST
    heard.seconds = min(2 * heard.seconds, LONGEST_SECONDS)
    return count
