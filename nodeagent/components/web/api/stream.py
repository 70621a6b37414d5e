"""Envelopes as server-sent events, and which of them a client asked for; pure."""

from collections.abc import Iterable, Mapping
from typing import Any

from msgspec import json

from nodeagent.components.web.api.records import EventRecord
from nodeagent.components.web.page.event_words import Teller
from nodeagent.core.values import Envelope
from nodeagent.model.values import Value

KEEPALIVE = b": still here\n\n"
DIGITS_MAX = 18
QUIET_TYPES = frozenset({"NodeSample", "PartUsage"})
"""Left out unless asked for by name: one a second says nothing to somebody who follows a fault."""


class EventQuery(Value, frozen=True):
    """Which events a client asked for, and whether it waits for more."""

    types: frozenset[str] | None = None
    """`None` when the client leaves it to us."""
    last_seen: int | None = None
    """The last one that it has; `None` where it says nothing of it."""
    is_followed: bool = True

    def wants(self, type_name: str) -> bool:
        """Whether it sees events of this type."""
        return type_name not in QUIET_TYPES if self.types is None else type_name in self.types

    def select(self, events: Iterable[EventRecord]) -> list[EventRecord]:
        """Of a list everything that is wanted, from the one after the last that it has."""
        return [one for one in events if self.wants(one.type) and (self.last_seen is None or one.seq > self.last_seen)]

    def misses(self, event: EventRecord) -> bool:
        """Whether a stream begins with this one of those that were before: a reconnect loses nothing."""
        return self.last_seen is not None and event.seq > self.last_seen and self.wants(event.type)


def parse_query(headers: Mapping[str, str], query: Mapping[str, str]) -> EventQuery:
    """What the client asks for.

    Raises:
        QueryMalformed: a parameter says nothing that can be understood.
    """
    types, last_seen, is_followed = _parse_types(query), _parse_last_seen(headers, query), _parse_follow(query)
    return EventQuery(types=types, last_seen=last_seen, is_followed=is_followed)


def build_event(envelope: Envelope[Any], teller: Teller) -> EventRecord:
    """One envelope as the API shows it."""
    return EventRecord(
        seq=envelope.seq,
        time_seconds=envelope.time,
        type=type(envelope.value).__name__,
        source=envelope.source,
        value=envelope.value,
        key=envelope.key,
        cause=envelope.cause,
        lag=envelope.lag,
        text=teller.tell(envelope),
    )


def render_event(event: EventRecord) -> bytes:
    """The event on the wire; JSON has no line breaks, so one data line is enough."""
    return b"id: %d\nevent: %s\ndata: %s\n\n" % (event.seq, event.type.encode(), json.encode(event))


def _parse_types(query: Mapping[str, str]) -> frozenset[str] | None:
    """The types asked for by `?types=A,B`; `None` when the client leaves it to us."""
    names = frozenset(name.strip() for name in query.get("types", "").split(",") if name.strip())
    return names or None


def _parse_last_seen(headers: Mapping[str, str], query: Mapping[str, str]) -> int | None:
    """The last event the client has, so that a reconnect loses nothing the history still holds.

    Raises:
        QueryMalformed: `?since=` is no number. A browser's own header that is none is passed over: nobody typed it.
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
    """A parameter of the query says nothing that can be understood."""

    def __init__(self, name: str, text: str, takes: str) -> None:
        super().__init__(f"?{name}= takes {takes}, not {text[:40]!r}")
