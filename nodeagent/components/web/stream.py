"""Envelopes as server-sent events, and which of them a client asked for; pure."""

from collections.abc import Mapping

from msgspec import json

from nodeagent.components.web.records import EventRecord
from nodeagent.components.web.shapes import EnvelopeLike

KEEPALIVE = b": still here\n\n"
QUIET_TYPES = frozenset({"NodeSample"})
"""Left out unless asked for by name: one a second says nothing to somebody who follows a fault."""


def build_event(envelope: EnvelopeLike) -> EventRecord:
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
    """The last event the client has, so that a reconnect loses nothing the history still holds."""
    text = headers.get("last-event-id") or query.get("since") or ""
    return int(text) if text.isascii() and text.isdigit() else None
