"""Events from before the agent's start, as recorded by the last agent, kept over restarts; pure.

Owns the stored fields of an event, and its number in a later process: events of earlier processes count up to -1.
Refuses files: bytes in, bytes out.
"""

from collections.abc import Sequence
from typing import Final

from msgspec import json
from msgspec.structs import replace

from nodeagent.components.web.api.records import EventRecord

EVENT_STORE_VERSION: Final = 1
KEPT: Final = 200
LARGE: Final = frozenset({"Inventory", "HealthReport", "ActiveConditions"})
"""Values of these are left out: the sentence stays, and the value is out of date."""


def encode_events(events: Sequence[EventRecord]) -> bytes:
    """The newest events with words for people, each with its nearest stored cause."""
    told = [event for event in events if event.text][-KEPT:]
    causes = {event.seq: event.cause for event in events}
    kept = {event.seq for event in told}
    return json.encode([_shorten(event, _find_cause(event.cause, causes, kept)) for event in told])


def decode_events(content: bytes) -> tuple[EventRecord, ...]:
    """The events in these bytes, numbered so that the last event is -1.

    Raises:
        DecodeError: The bytes are no events of this version.
    """
    events = json.decode(content, type=tuple[EventRecord, ...])
    numbers = {event.seq: place - len(events) for place, event in enumerate(events)}
    return tuple(
        replace(
            event,
            seq=numbers[event.seq],
            cause=None if event.cause is None else numbers.get(event.cause),
            before_restart=True,
        )
        for event in events
    )


def _find_cause(cause: int | None, causes: dict[int, int | None], kept: set[int]) -> int | None:
    """The nearest stored event on the way back."""
    seen: set[int] = set()
    while cause is not None and cause not in kept and cause not in seen:
        seen.add(cause)
        cause = causes.get(cause)
    return cause if cause in kept else None


def _shorten(event: EventRecord, cause: int | None) -> EventRecord:
    return replace(event, cause=cause, value=None if event.type in LARGE else event.value)
