"""gRPC's words on top of HTTP/2."""

import struct
from urllib.parse import unquote

import pytest

from nodeagent.edge.grpc.calls import (
    LONGEST_STATUS_TEXT,
    MAX_REQUEST_BYTES,
    CallRefused,
    encode_message,
    judge_body,
    judge_head,
    parse_body,
    render_trailers,
)
from nodeagent.edge.grpc.errors import Status

CALL = [(b":method", b"POST"), (b":path", b"/a.B/C"), (b"content-type", b"application/grpc")]


@pytest.mark.parametrize("text", ["", "plain words", "50% of GPU-1", "größer\nals\x7f", "tab\tand 漢字"])
def test_status_text_survives_escaping(text: str) -> None:
    """Whatever stands in an error text, the kubelet reads it as it was meant, in printable ASCII on the wire."""
    fields = dict(render_trailers(Status.NOT_FOUND, text))
    raw = fields.get(b"grpc-message", b"")
    assert fields[b"grpc-status"] == b"5"
    assert text == unquote(raw.decode("ascii"))
    assert all(0x20 <= byte <= 0x7E for byte in raw)


def test_long_status_text_is_cut() -> None:
    """An endless error text is cut to what a pod's event can hold."""
    fields = dict(render_trailers(Status.INTERNAL, "x" * 100_000))
    assert len(fields[b"grpc-message"]) == LONGEST_STATUS_TEXT


@pytest.mark.parametrize("content_type", [b"application/grpc", b"application/grpc+proto", b"application/grpc;x=y"])
@pytest.mark.parametrize("authority", [b"localhost", b"%2Fvar%2Flib", b"/var/lib/kubelet/x.sock", b"\xff"])
def test_any_authority_is_served(authority: bytes, content_type: bytes) -> None:
    """Each kubelet version has its own idea of the authority of a unix socket, and all are served."""
    head = judge_head([*CALL[:2], (b":authority", authority), (b"content-type", content_type)])
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
    _, refusal = judge_head(fields)
    assert refusal is not None
    assert refusal.text


def test_message_is_its_own_inverse() -> None:
    """What one side wraps the other unwraps."""
    assert parse_body(encode_message(b"abc")) == b"abc"
    assert parse_body(encode_message(b"")) == b""


@pytest.mark.parametrize("body", [b"", b"\0\0\0\0", b"\0\0\0\0\3ab"])
def test_a_body_that_ends_too_soon_is_refused(body: bytes) -> None:
    """It is judged when it is whole: until then it may become right."""
    assert judge_body(body) is None
    with pytest.raises(CallRefused, match="ends after") as refused:
        parse_body(body)
    assert refused.value.status is Status.INVALID_ARGUMENT


@pytest.mark.parametrize(
    ("body", "status"),
    [
        (b"\0\0\0\0\1ab", Status.INVALID_ARGUMENT),
        (b"\1\0\0\0\1a", Status.UNIMPLEMENTED),
        (struct.pack(">BI", 0, MAX_REQUEST_BYTES + 1), Status.RESOURCE_EXHAUSTED),
    ],
)
def test_a_bad_body_is_refused_as_soon_as_it_shows(body: bytes, status: Status) -> None:
    """One that goes on, is compressed or announces too much, each with its own status."""
    refusal = judge_body(body)
    assert refusal is not None
    assert refusal.status is status
