"""gRPC's words on top of HTTP/2: status codes, the head of a request, the header blocks of an answer. Pure."""

import struct
from collections.abc import Iterable
from typing import Final, NamedTuple
from urllib.parse import quote

from grpclib.const import Status

from nodeagent.edge.kubelet.wire.frames import encode_header

MESSAGE_PREFIX_BYTES: Final = 5
LONGEST_STATUS_TEXT: Final = 1024
"""Characters of an error text that are sent; the kubelet puts it into a pod's event, which holds 1,024."""

_PREFIX: Final = struct.Struct(">BI")
# 0x88 is the static table's `:status: 200`.
RESPONSE_HEADERS: Final = b"\x88" + encode_header(b"content-type", b"application/grpc+proto")
OK_TRAILERS: Final = encode_header(b"grpc-status", b"0")


class Refusal(NamedTuple):
    """Why a request gets no answer."""

    status: Status
    text: str


class Head(NamedTuple):
    """What the header block of a request says: which method, or why it cannot be served."""

    path: str
    refusal: Refusal | None = None


def parse_head(fields: Iterable[tuple[bytes, bytes]]) -> Head:
    """Judge a request by its header fields; `:authority` may be anything, each kubelet has its own idea of it."""
    headers = dict(fields)
    path = headers.get(b":path", b"").decode("utf-8", "replace")
    if headers.get(b":method") != b"POST":
        return Head(path, Refusal(Status.INTERNAL, "a gRPC call is a POST"))
    content_type = headers.get(b"content-type", b"")
    if content_type.partition(b";")[0] not in {b"application/grpc", b"application/grpc+proto"}:
        return Head(path, Refusal(Status.INTERNAL, "a gRPC call has content-type application/grpc"))
    return Head(path)


def encode_message(message: bytes) -> bytes:
    """A message with its prefix."""
    return _PREFIX.pack(0, len(message)) + message


def parse_message(body: bytes, limit_bytes: int) -> bytes | Refusal:
    """The one message of a complete request, or what is wrong with its body."""
    if len(body) < MESSAGE_PREFIX_BYTES:
        return Refusal(Status.INVALID_ARGUMENT, f"the request ends after {len(body)} bytes, before its message")
    refusal = judge_body(body, limit_bytes)
    if refusal:
        return refusal
    received = len(body) - MESSAGE_PREFIX_BYTES
    announced: int = _PREFIX.unpack_from(body)[1]
    if received < announced:
        return Refusal(Status.INVALID_ARGUMENT, f"the request ends after {received} of {announced} bytes")
    return body[MESSAGE_PREFIX_BYTES:]


def judge_body(body: bytes | bytearray, limit_bytes: int) -> Refusal | None:
    """What is already wrong with the part of a body that has come."""
    if len(body) < MESSAGE_PREFIX_BYTES:
        return None
    compressed, announced = _PREFIX.unpack_from(body)
    if compressed:
        return Refusal(Status.UNIMPLEMENTED, "compressed messages are not supported")
    if announced > limit_bytes:
        return Refusal(Status.RESOURCE_EXHAUSTED, f"the message has {announced} bytes, the limit is {limit_bytes}")
    if len(body) - MESSAGE_PREFIX_BYTES > announced:
        return Refusal(Status.INVALID_ARGUMENT, f"the request goes on after its message of {announced} bytes")
    return None


def encode_trailers(status: Status, text: str) -> bytes:
    """The header block that ends an answer."""
    if status is Status.OK:
        return OK_TRAILERS
    block = encode_header(b"grpc-status", str(status.value).encode())
    if text:
        # A path in the text may hold bytes that are no text.
        escaped = quote(text[:LONGEST_STATUS_TEXT], safe=" !\"#$&'()*+,/:;<=>?@[\\]^`{|}", errors="replace")
        block += encode_header(b"grpc-message", escaped.encode())
    return block
