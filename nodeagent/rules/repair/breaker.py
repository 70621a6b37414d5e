"""The breaker of a domain of repairs: stops after repairs that were not proven, and widens again by itself; pure.

Laws: a breaker never latches, as each pause ends in one probe; and never lets all repairs go at once, as a proven probe
lets two go, and a proven repair after that as many as there are slots.
"""

from typing import Final

import msgspec
from msgspec.structs import replace

from nodeagent.model.values import Value

RESULTS_KEPT: Final = 5
RESULTS_BAD: Final = 3
"""So many unproven repairs among the kept results stop the domain."""
PAUSE_SECONDS: Final = 1800.0
PAUSE_MAX_SECONDS: Final = 8 * 3600.0
_PROBED_WIDTH: Final = 2


class Breaker(Value, frozen=True):
    """A breaker as the annotation of a domain's first slot has it."""

    phase: int = 0
    """Raised by each change of the width or the pause, so that a reader knows from when to count the pause."""
    width: int | None = None
    """How many of the slots may be taken; 0 for a stopped domain, `None` for all slots."""
    pause_seconds: float = PAUSE_SECONDS
    results: tuple[bool, ...] = ()
    """Whether each of the last repairs was proven, the newest last."""


def read_breaker(text: str) -> Breaker:
    """The breaker in an annotation; a text that nobody can read is a stopped breaker, which a probe overwrites."""
    try:
        return msgspec.json.decode(text, type=Breaker) if text else Breaker()
    except msgspec.DecodeError:
        return Breaker(width=0)


def render_breaker(breaker: Breaker) -> str:
    """The text for the annotation."""
    return msgspec.json.encode(breaker).decode()


def count_open(breaker: Breaker, slots: int, seen_seconds: float) -> int:
    """How many of the domain's slots may be taken, the first ones.

    Args:
        breaker: the breaker.
        slots: how many slots the domain has.
        seen_seconds: for how long the reader has seen this phase, by the reader's own clock.
    """
    if breaker.width is None:
        return slots
    if breaker.width <= 0:
        return int(seen_seconds >= breaker.pause_seconds)
    return min(breaker.width, slots)


def note_result(breaker: Breaker, taken_in: int, *, is_proven: bool) -> Breaker:
    """The breaker after a repair.

    Args:
        breaker: the breaker as it is now.
        taken_in: the phase in which the repair took its slot; a stopped domain listens to its probe alone.
        is_proven: whether the proof after the repair passed.
    """
    results = (*breaker.results, is_proven)[-RESULTS_KEPT:]
    if breaker.width is None:
        if results.count(False) < RESULTS_BAD:
            return replace(breaker, results=results)
        return Breaker(phase=breaker.phase + 1, width=0)
    if taken_in != breaker.phase:
        return breaker
    if not is_proven:
        longer = min(2 * breaker.pause_seconds, PAUSE_MAX_SECONDS)
        return Breaker(phase=breaker.phase + 1, width=0, pause_seconds=longer)
    if breaker.width <= 0:
        return replace(breaker, phase=breaker.phase + 1, width=_PROBED_WIDTH)
    return Breaker(phase=breaker.phase + 1)
