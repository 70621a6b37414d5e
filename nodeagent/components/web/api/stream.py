"""Envelopes as server-sent events, and which of them a client asked for; pure."""

from collections.abc import Mapping
from typing import Any

from msgspec import json

from nodeagent.components.web.api.records import EventRecord
from nodeagent.components.web.page.event_words import Teller
from nodeagent.core.values import Envelope

KEEPALIVE = b": still here\n\n"
DIGITS_MAX = 18
QUIET_TYPES = frozenset({"NodeSample", "PartUsage"})
"""Left out unless asked for by name: one a second says nothing to somebody who follows a fault."""


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


def parse_types(query: Mapping[str, str]) -> frozenset[str] | None:
    """The types asked for by `?types=A,B`; `None` when the client leaves it to us."""
    names = frozenset(name.strip() for name in query.get("types", "").split(",") if name.strip())
    return names or None


def is_wanted(type_name: str, types: frozenset[str] | None) -> bool:
    """Whether the client sees events of this type."""
    return type_name not in QUIET_TYPES if types is None else type_name in types


def parse_last_seen(headers: Mapping[str, str], query: Mapping[str, str]) -> int | None:
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


def parse_follow(query: Mapping[str, str]) -> bool:
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
