"""The form of services, requests and answers, in gRPC's terms. Pure.

Owns the judgement of a request's header fields and body, and the header fields of answers.
"""

import struct
from collections.abc import Awaitable, Callable, Iterable, Mapping
from typing import Any, Final, NamedTuple
from urllib.parse import quote

from google.protobuf.message import Message

from nodeagent.edge.grpc.errors import Status

MAX_REQUEST_BYTES: Final = 4 * 1024 * 1024
"""gRPC's limit everywhere else; the kubelet's longest question, for one of 1,600 device ids, has 74 kB."""
MESSAGE_PREFIX_BYTES: Final = 5
LONGEST_STATUS_TEXT: Final = 1024
RESPONSE_HEADERS: Final = [(b":status", b"200"), (b"content-type", b"application/grpc+proto")]
OK_TRAILERS: Final = [(b"grpc-status", b"0")]
CRASH_TEXT: Final = "nodeagent failed on this call, its log says how"
_CONTENT_TYPES: Final = {b"application/grpc", b"application/grpc+proto"}
_PREFIX: Final = struct.Struct(">BI")

Headers = list[tuple[bytes, bytes]]


class CallRefused(Exception):
    """A handler's way to answer with an error."""

    def __init__(self, status: Status, text: str) -> None:
        super().__init__(f"{status.name.lower()}: {text}")
        self.status, self.text = status, text


class Replies(NamedTuple):
    """The answering end of a streaming call."""

    send: Callable[[Message], Awaitable[None]]
    """Sends an answer; returns when the caller has room, so that a slow caller slows only the caller's own call."""
    wait_closed: Callable[[], Awaitable[object]]
    """Returns when the caller has closed the connection, not only the call."""


class Unary(NamedTuple):
    """A method with one answer; a call once begun is carried to the end, even for a caller that has gone."""

    request_type: type[Message]
    handler: Callable[[Any], Awaitable[Message]]


class Streaming(NamedTuple):
    """A method with a stream of answers; a call ends when the caller leaves."""

    request_type: type[Message]
    handler: Callable[[Any, Replies], Awaitable[None]]


Methods = Mapping[str, Unary | Streaming]
"""By path: `/package.Service/Method`."""

CrashReporter = Callable[[str, Exception], None]
"""Called with method and error when a handler fails with anything but a refusal; the caller gets INTERNAL."""


def judge_head(fields: Iterable[tuple[bytes, bytes]]) -> tuple[str, CallRefused | None]:
    """A request's path and the fault of the head, if any; `:authority` may be anything, as kubelets differ."""
    headers = dict(fields)
    path = headers.get(b":path", b"").decode("utf-8", "replace")
    if headers.get(b":method") != b"POST":
        return path, CallRefused(Status.INTERNAL, "a gRPC call is a POST")
    if headers.get(b"content-type", b"").partition(b";")[0] not in _CONTENT_TYPES:
        return path, CallRefused(Status.INTERNAL, "a gRPC call has content-type application/grpc")
    return path, None


def judge_body(body: bytes | bytearray) -> CallRefused | None:
    """The fault of the body received so far, if any."""
    if len(body) < MESSAGE_PREFIX_BYTES:
        return None
    compressed, announced = _PREFIX.unpack_from(body)
    if compressed:
        return CallRefused(Status.UNIMPLEMENTED, "compressed messages are not supported")
    if announced > MAX_REQUEST_BYTES:
        text = f"the message has {announced} bytes, the limit is {MAX_REQUEST_BYTES}"
        return CallRefused(Status.RESOURCE_EXHAUSTED, text)
    if len(body) - MESSAGE_PREFIX_BYTES > announced:
        return CallRefused(Status.INVALID_ARGUMENT, f"the request goes on after its message of {announced} bytes")
    return None


def parse_body(body: bytes | bytearray) -> bytes:
    """The single message of a complete request not refused so far.

    Raises:
        CallRefused: the message ends too soon.
    """
    if len(body) < MESSAGE_PREFIX_BYTES:
        text = f"the request ends after {len(body)} bytes, before its message"
        raise CallRefused(Status.INVALID_ARGUMENT, text)
    received, announced = len(body) - MESSAGE_PREFIX_BYTES, _PREFIX.unpack_from(body)[1]
    if received < announced:
        text = f"the request ends after {received} of {announced} bytes"
        raise CallRefused(Status.INVALID_ARGUMENT, text)
    return bytes(body[MESSAGE_PREFIX_BYTES:])


def encode_message(message: bytes) -> bytes:
    """A message with the length prefix."""
    return _PREFIX.pack(0, len(message)) + message


def render_trailers(status: Status, text: str) -> Headers:
    """The header fields that end an answer."""
    fields = [(b"grpc-status", str(status.value).encode())]
    if text:
        # A path in the text may hold bytes outside UTF-8.
        escaped = quote(text[:LONGEST_STATUS_TEXT], safe=" !\"#$&'()*+,/:;<=>?@[\\]^`{|}", errors="replace")
        fields.append((b"grpc-message", escaped.encode()))
    return fields
