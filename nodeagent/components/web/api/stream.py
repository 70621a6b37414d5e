"""Envelopes as server-sent events, and a client's choice of events; pure."""

from collections.abc import Iterable, Mapping
from typing import Any

from msgspec import json

from nodeagent.components.web.api.records import EventRecord
from nodeagent.components.web.page.event_words import Teller
from nodeagent.core.values import Envelope
from nodeagent.model.values import Value

KEEPALIVE = b": still here\n\n"
DIGITS_MAX = 18
QUIET_TYPES = frozenset({"DeviceReadingTable", "NodeSample", "PartUsage"})
"""Left out unless asked for by name: an event a second is noise to people following a fault."""


class EventQuery(Value, frozen=True):
    """A client's choice of events, and whether to follow new events."""

    types: frozenset[str] | None = None
    """`None` for the default choice."""
    last_seen: int | None = None
    """The last event seen by the client; `None` if not given."""
    is_followed: bool = True

    def wants(self, type_name: str) -> bool:
        """Whether the client wants events of this type."""
        return type_name not in QUIET_TYPES if self.types is None else type_name in self.types

    def select(self, events: Iterable[EventRecord]) -> list[EventRecord]:
        """The wanted events of a list, after the last event seen."""
        return [one for one in events if self.wants(one.type) and (self.last_seen is None or one.seq > self.last_seen)]

    def misses(self, event: EventRecord) -> bool:
        """Whether a stream begins with this past event: a reconnect loses no event."""
        return self.last_seen is not None and event.seq > self.last_seen and self.wants(event.type)


def parse_query(headers: Mapping[str, str], query: Mapping[str, str]) -> EventQuery:
    """The query of a request.

    Raises:
        QueryMalformed: A parameter cannot be understood.
    """
    types, last_seen, is_followed = _parse_types(query), _parse_last_seen(headers, query), _parse_follow(query)
    return EventQuery(types=types, last_seen=last_seen, is_followed=is_followed)


def build_event(envelope: Envelope[Any], teller: Teller) -> EventRecord:
    """An envelope as a record of the API."""
    return EventRecord(
        seq=envelope.seq,
        time_seconds=envelope.time,
        type=envelope.type_name,
        source=envelope.source,
        value=envelope.value,
        key=envelope.key,
        cause=envelope.cause,
        lag=envelope.lag,
        text=teller.tell(envelope),
    )


def render_event(event: EventRecord) -> bytes:
    """The event on the wire; JSON has no line breaks, so a single data line is enough."""
    return b"id: %d\nevent: %s\ndata: %s\n\n" % (event.seq, event.type.encode(), json.encode(event))


def _parse_types(query: Mapping[str, str]) -> frozenset[str] | None:
    """The types asked for by `?types=A,B`; `None` for the default choice."""
    names = frozenset(name.strip() for name in query.get("types", "").split(",") if name.strip())
    return names or None


def _parse_last_seen(headers: Mapping[str, str], query: Mapping[str, str]) -> int | None:
    """The last event seen by the client, so that a reconnect loses no event still in the history.

    Raises:
        QueryMalformed: `?since=` is no number. A bad header is ignored: headers come from browsers, not from people.
    """
    seen = _parse_number(headers.get("last-event-id", ""))
    text = query.get("since", "")
    if seen is None and text:
        seen = _parse_number(text)
        if seen is None:
            raise QueryMalformed("since", text, "the seq of an event, 0 for all that are remembered")
    return seen


def _parse_follow(query: Mapping[str, str]) -> bool:
    """Whether the client waits for more.

    Raises:
        QueryMalformed: `?follow=` is neither `true` nor `false`.
    """
    text = query.get("follow", "true")
    if text not in {"true", "false"}:
        raise QueryMalformed("follow", text, "true for a stream, false for a list")
    return text == "true"


def _parse_number(text: str) -> int | None:
    is_number = text.isascii() and text.isdigit() and len(text) <= DIGITS_MAX
    return int(text) if is_number else None


class QueryMalformed(Exception):
    """A parameter of the query cannot be understood."""

    def __init__(self, name: str, text: str, takes: str) -> None:
        super().__init__(f"?{name}= takes {takes}, not {text[:40]!r}")
