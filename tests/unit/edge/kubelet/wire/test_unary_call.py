"""One call as its caller sees it: what is sent, and what a peer's frames mean, however they come."""

from collections.abc import Iterator

import pytest
from grpclib.const import Status

from nodeagent.edge.kubelet.wire import frames, unary_call
from nodeagent.edge.kubelet.wire.grpc_status import OK_TRAILERS, RESPONSE_HEADERS, encode_message, encode_trailers
from nodeagent.edge.kubelet.wire.http2 import Request, ServerConnection
from nodeagent.edge.kubelet.wire.unary_call import AnswerBroken, AnswerRefused, UnaryCall

METHOD = "/v1.PodResourcesLister/List"
SETTINGS = frames.encode_settings({frames.SETTING_MAX_CONCURRENT_STREAMS: 128})
LAST = frames.END_HEADERS | frames.END_STREAM


def make_call() -> UnaryCall:
    return UnaryCall(METHOD, b"question", 5.0)


def headers(block: bytes, flags: int = frames.END_HEADERS) -> bytes:
    return frames.encode_frame(frames.HEADERS, flags, 1, block)


def data(payload: bytes, flags: int = 0) -> bytes:
    return frames.encode_frame(frames.DATA, flags, 1, payload)


def answer(message: bytes) -> bytes:
    return headers(RESPONSE_HEADERS) + data(encode_message(message)) + headers(OK_TRAILERS, LAST)


def test_our_own_server_understands_the_call() -> None:
    """The opening is one complete request, and the answer to it is read; the property tests do this with others."""
    call, server = make_call(), ServerConnection()
    (request,) = server.receive(call.opening)
    assert request == Request(1, METHOD, b"question")
    server.sender.answer(1, b"answer")
    call.receive(server.sender.take_output())
    assert call.answer == b"answer"


@pytest.mark.parametrize("size", [1, 3, 9, 1000])
def test_pieces_of_any_size_make_the_same_answer(size: int) -> None:
    """Frames may be cut anywhere."""
    call, whole = make_call(), SETTINGS + answer(b"x" * 500)
    replies = b"".join(call.receive(whole[at : at + size]) for at in range(0, len(whole), size))
    assert call.answer == b"x" * 500
    assert replies == frames.encode_frame(frames.SETTINGS, frames.ACK, 0)


def test_what_the_peer_wants_to_know_is_answered() -> None:
    """Pings come back, acknowledgements are not acknowledged, windows and what is not known are passed over."""
    call = make_call()
    ping = frames.encode_frame(frames.PING, 0, 0, b"12345678")
    assert call.receive(ping) == frames.encode_frame(frames.PING, frames.ACK, 0, b"12345678")
    for frame in (
        frames.encode_frame(frames.PING, frames.ACK, 0, b"12345678"),
        frames.encode_frame(frames.SETTINGS, frames.ACK, 0),
        frames.encode_window_update(0, 100),
        frames.encode_frame(0xBE, 0, 7, b"?"),
        frames.encode_goaway(1, frames.NO_ERROR),
        frames.encode_frame(frames.DATA, 0, 3, b"another stream"),
    ):
        assert call.receive(frame) == b""
    call.receive(answer(b"yes"))
    assert call.answer == b"yes"


def test_padding_priority_and_continuations_are_taken_off() -> None:
    """All that HTTP/2 allows round a header block and a body."""
    half = len(RESPONSE_HEADERS) // 2
    first = b"\x02" + bytes(5) + RESPONSE_HEADERS[:half] + bytes(2)
    call = make_call()
    call.receive(headers(first, frames.PADDED | frames.HAS_PRIORITY))
    call.receive(frames.encode_frame(frames.CONTINUATION, frames.END_HEADERS, 1, RESPONSE_HEADERS[half:]))
    call.receive(data(b"\x03" + encode_message(b"padded") + bytes(3), frames.PADDED))
    call.receive(headers(OK_TRAILERS[:4], frames.END_STREAM))
    assert call.answer is None
    call.receive(frames.encode_frame(frames.CONTINUATION, frames.END_HEADERS, 1, OK_TRAILERS[4:]))
    assert call.answer == b"padded"


@pytest.mark.parametrize(
    ("status", "text", "said"),
    [
        (Status.UNKNOWN, "pod x in namespace y not found", "pod x in namespace y not found"),
        (Status.RESOURCE_EXHAUSTED, "50 % of 100 ü", "50 % of 100 ü"),
        (Status.UNAVAILABLE, "", "UNAVAILABLE"),
    ],
)
def test_a_refusal_keeps_its_status_and_its_words(status: Status, text: str, said: str) -> None:
    """An answer of trailers only, as gRPC servers send it."""
    with pytest.raises(AnswerRefused) as refused:
        make_call().receive(headers(b"\x88" + encode_trailers(status, text), LAST))
    assert (refused.value.status, str(refused.value)) == (status, said)


def list_nonsense() -> Iterator[tuple[str, bytes]]:
    compressed = b"\x01" + encode_message(b"x")[1:]
    yield "HTTP status 404", headers(frames.encode_header(b":status", b"404"), LAST)
    yield "HTTP status none", headers(OK_TRAILERS, LAST)
    yield "gRPC status missing", headers(RESPONSE_HEADERS, LAST)
    yield "gRPC status many", headers(b"\x88" + frames.encode_header(b"grpc-status", b"many"), LAST)
    yield "gRPC status 99", headers(b"\x88" + frames.encode_header(b"grpc-status", b"99"), LAST)
    yield "before its message", headers(b"\x88" + OK_TRAILERS, LAST)
    yield "compressed", headers(RESPONSE_HEADERS) + data(compressed) + headers(OK_TRAILERS, LAST)
    yield "cannot be decoded", headers(b"\xff\xff\xff\xff\xff\xff")
    yield "interrupted", headers(RESPONSE_HEADERS, 0) + data(b"")
    yield "CONTINUATION of nothing", frames.encode_frame(frames.CONTINUATION, 0, 1, b"")
    yield "endless header block", headers(bytes(unary_call.MAX_HEADER_BYTES + 1), 0)
    yield "padding longer", data(b"\x09x", frames.PADDED)
    yield "padding longer", headers(b"", frames.PADDED)
    yield "HTTP/2 code 7", frames.encode_reset(1, frames.REFUSED_STREAM)
    yield "without taking the call", frames.encode_goaway(0, frames.NO_ERROR)
    yield "a frame of", b"\xff\xff\xff" + bytes(6)


@pytest.mark.parametrize(("reason", "received"), tuple(list_nonsense()))
def test_nonsense_ends_the_call_with_its_reason(reason: str, received: bytes) -> None:
    """Nothing half understood becomes an answer."""
    call = make_call()
    with pytest.raises(AnswerBroken, match=reason):
        call.receive(received)
    assert call.answer is None


def test_an_answer_without_end_is_cut_off(monkeypatch: pytest.MonkeyPatch) -> None:
    """A peer that goes on sending cannot eat the memory."""
    monkeypatch.setattr(unary_call, "MAX_ANSWER_BYTES", 100)
    with pytest.raises(AnswerBroken, match="more than 100 bytes"):
        make_call().receive(headers(RESPONSE_HEADERS) + data(bytes(101)))
