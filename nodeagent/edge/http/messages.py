"""Requests and answers as plain values, so that handlers can be tested without a socket."""

from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from dataclasses import dataclass, field

JSON = "application/json"
PROBLEM = "application/problem+json"
TEXT = "text/plain; charset=utf-8"
HTML = "text/html; charset=utf-8"
EVENTS = "text/event-stream"
SERVER = "nodeagent"
"""The field `Server` of every answer, by which the command line knows the agent; strangers get no version."""


@dataclass(frozen=True, slots=True)
class Peer:
    """The asking process, as the kernel vouches; all -1 for a TCP peer."""

    pid: int = -1
    uid: int = -1
    gid: int = -1


@dataclass(frozen=True, slots=True)
class Request:
    """An HTTP request; header names are lower case."""

    method: str
    path: str
    query: Mapping[str, str] = field(default_factory=dict)
    headers: Mapping[str, str] = field(default_factory=dict)
    body: bytes = b""
    arguments: Mapping[str, str] = field(default_factory=dict)
    """The values of the route's `{name}` segments."""
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
