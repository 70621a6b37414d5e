"""gRPC's words on top of HTTP/2."""

from urllib.parse import unquote

import pytest
from grpclib.const import Status
from hpack import Decoder

from nodeagent.edge.kubelet.wire.grpc_status import (
    LONGEST_STATUS_TEXT,
    OK_TRAILERS,
    RESPONSE_HEADERS,
    Refusal,
    encode_message,
    encode_trailers,
    judge_body,
    parse_head,
    parse_message,
)

CALL = [(b":method", b"POST"), (b":path", b"/a.B/C"), (b"content-type", b"application/grpc")]


def decode(block: bytes) -> dict[bytes, bytes]:
    return dict(Decoder().decode(block, raw=True))


def test_answer_headers_say_ok() -> None:
    """The constant header blocks decode to a gRPC answer."""
    assert decode(RESPONSE_HEADERS) == {b":status": b"200", b"content-type": b"application/grpc+proto"}
    assert decode(OK_TRAILERS) == {b"grpc-status": b"0"}
    assert encode_trailers(Status.OK, "") == OK_TRAILERS


@pytest.mark.parametrize("text", ["", "plain words", "50% of GPU-1", "größer\nals\x7f", "tab\tand 漢字"])
def test_status_text_survives_escaping(text: str) -> None:
    """Whatever stands in an error text, the kubelet reads it as it was meant, in printable ASCII on the wire."""
    fields = decode(encode_trailers(Status.NOT_FOUND, text))
    raw = fields.get(b"grpc-message", b"")
    assert fields[b"grpc-status"] == b"5"
    assert text == unquote(raw.decode("ascii"))
    assert all(0x20 <= byte <= 0x7E for byte in raw)


def test_long_status_text_is_cut() -> None:
    """An endless error text is cut to what a pod's event can hold."""
    fields = decode(encode_trailers(Status.INTERNAL, "x" * 100_000))
    assert len(fields[b"grpc-message"]) == LONGEST_STATUS_TEXT


@pytest.mark.parametrize("content_type", [b"application/grpc", b"application/grpc+proto", b"application/grpc;x=y"])
@pytest.mark.parametrize("authority", [b"localhost", b"%2Fvar%2Flib", b"/var/lib/kubelet/x.sock", b"\xff"])
def test_any_authority_is_served(authority: bytes, content_type: bytes) -> None:
    """Each kubelet version has its own idea of the authority of a unix socket, and all are served."""
    head = parse_head([*CALL[:2], (b":authority", authority), (b"content-type", content_type)])
    assert head == ("/a.B/C", None)


@pytest.mark.parametrize(
    "fields",
    [
        [],
        CALL[1:],
        CALL[:2],
        [(b":method", b"GET"), *CALL[1:]],
        [*CALL[:2], (b"content-type", b"application/json")],
        [*CALL[:2], (b"content-type", b"application/grpc+json")],
    ],
)
def test_what_is_no_grpc_call_is_refused(fields: list[tuple[bytes, bytes]]) -> None:
    """A request without the marks of a gRPC call is refused with words."""
    refusal = parse_head(fields).refusal
    assert refusal is not None
    assert refusal.text


def test_message_is_its_own_inverse() -> None:
    """What one side wraps the other unwraps."""
    assert parse_message(encode_message(b"abc"), 10) == b"abc"
    assert parse_message(encode_message(b""), 10) == b""


@pytest.mark.parametrize(
    ("body", "status"),
    [
        (b"", Status.INVALID_ARGUMENT),
        (b"\0\0\0\0", Status.INVALID_ARGUMENT),
        (b"\0\0\0\0\3ab", Status.INVALID_ARGUMENT),
        (b"\0\0\0\0\1ab", Status.INVALID_ARGUMENT),
        (b"\1\0\0\0\1a", Status.UNIMPLEMENTED),
        (b"\0\0\0\0\xff" + bytes(255), Status.RESOURCE_EXHAUSTED),
    ],
)
def test_bad_bodies_get_the_right_status(body: bytes, status: Status) -> None:
    """A body that is cut short, goes on, is compressed or is too large is refused, each with its own status."""
    refusal = parse_message(body, 100)
    assert isinstance(refusal, Refusal)
    assert status is refusal.status


def test_incomplete_body_is_judged_by_what_has_come() -> None:
    """Nothing is held against a body that may still become right."""
    assert judge_body(b"\0\0\0", 100) is None
    assert judge_body(b"\0\0\0\0\5ab", 100) is None
    assert judge_body(b"\0\0\0\0\xff", 100) is not None
