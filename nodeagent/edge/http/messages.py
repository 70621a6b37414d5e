"""Requests and answers as plain values, so that what serves them can be tested without a socket."""

from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from dataclasses import dataclass, field

JSON = "application/json"
PROBLEM = "application/problem+json"
TEXT = "text/plain; charset=utf-8"
HTML = "text/html; charset=utf-8"
EVENTS = "text/event-stream"
SERVER = "nodeagent"
"""What every answer says in `Server`, by which the command line knows its agent; no version, for strangers read it."""


@dataclass(frozen=True, slots=True)
class Peer:
    """Who is asking, as the kernel vouches for it; all -1 for a TCP peer."""

    pid: int = -1
    uid: int = -1
    gid: int = -1


@dataclass(frozen=True, slots=True)
class Request:
    """One HTTP request; header names are lower case."""

    method: str
    path: str
    query: Mapping[str, str] = field(default_factory=dict)
    headers: Mapping[str, str] = field(default_factory=dict)
    body: bytes = b""
    arguments: Mapping[str, str] = field(default_factory=dict)
    """What stood for the `{name}` parts of the route."""
    peer: Peer = field(default_factory=Peer)


@dataclass(frozen=True, slots=True)
class Response:
    """A whole answer."""

    body: bytes
    status: int = 200
    content_type: str = JSON
    headers: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Stream:
    """An answer without end: chunks until the iterator ends or the client leaves."""

    chunks: AsyncIterator[bytes]
    content_type: str = EVENTS


Answer = Response | Stream
Handler = Callable[[Request], Awaitable[Answer]]
