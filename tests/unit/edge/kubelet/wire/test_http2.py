"""One connection as its server sees it, with an independent implementation as the client."""

import struct
from collections.abc import Sequence

import pytest
from grpclib.const import Status
from h2.config import H2Configuration
from h2.connection import H2Connection
from h2.events import (
    DataReceived,
    Event,
    PingAckReceived,
    ResponseReceived,
    SettingsAcknowledged,
    StreamEnded,
    StreamReset,
    TrailersReceived,
)
from h2.settings import SettingCodes

from nodeagent.edge.kubelet.wire import frames, http2
from nodeagent.edge.kubelet.wire.grpc_status import encode_message
from nodeagent.edge.kubelet.wire.http2 import Cancelled, ConnectionBroken, Drained, Request, ServerConnection

CALL = [
    (":method", "POST"),
    (":scheme", "http"),
    (":path", "/v1beta1.DevicePlugin/Allocate"),
    (":authority", "localhost"),
    ("content-type", "application/grpc"),
    ("te", "trailers"),
]


class Wire:
    """A client and our server, joined without a network."""

    def __init__(self, limit: int = http2.MAX_MESSAGE_BYTES) -> None:
        self.client = H2Connection(H2Configuration(client_side=True, header_encoding="utf-8"))
        self.server = ServerConnection(limit)
        self.client.initiate_connection()
        self.exchange()

    def exchange(self) -> tuple[list[http2.Event], list[Event]]:
        """Carry everything both ways; returns what each side made of it."""
        heard, seen = self.server.receive(self.client.data_to_send()), self.read()
        heard += self.server.receive(self.client.data_to_send())
        return heard, seen

    def read(self) -> list[Event]:
        return list(self.client.receive_data(self.server.sender.take_output()))

    def call(self, body: bytes, *, headers: Sequence[tuple[str, str]] = CALL) -> int:
        stream_id = self.client.get_next_available_stream_id()
        self.client.send_headers(stream_id, headers)
        self.client.send_data(stream_id, body, end_stream=True)
        return stream_id


def statuses(events: list[Event]) -> list[str]:
    headers = [event.headers for event in events if isinstance(event, TrailersReceived | ResponseReceived)]
    # The client was told to decode header fields; its types do not know.
    return [str(value) for fields in headers for name, value in fields if str(name) == "grpc-status"]


def raw(kind: int, flags: int, stream_id: int, payload: bytes = b"") -> bytes:
    return frames.encode_frame(kind, flags, stream_id, payload)


def greeted() -> ServerConnection:
    """A server that has had a preface and settings."""
    server = ServerConnection()
    server.receive(frames.PREFACE + frames.encode_settings({}))
    server.sender.take_output()
    return server


def test_both_sides_agree_on_settings() -> None:
    """The client accepts our settings and sees its own acknowledged."""
    wire = Wire()
    assert wire.client.remote_settings.max_concurrent_streams == http2.MAX_STREAMS
    assert wire.client.remote_settings.initial_window_size == http2.STREAM_WINDOW_BYTES
    wire.client.update_settings({SettingCodes.INITIAL_WINDOW_SIZE: 1000})
    assert any(isinstance(event, SettingsAcknowledged) for event in wire.exchange()[1])


def test_call_and_answer() -> None:
    """A request is heard as path and message; the answer arrives with status 0."""
    wire = Wire()
    stream_id = wire.call(encode_message(b"question"))
    heard, _ = wire.exchange()
    assert [Request(stream_id, "/v1beta1.DevicePlugin/Allocate", b"question")] == heard
    wire.server.sender.answer(stream_id, b"answer")
    seen = wire.read()
    assert [encode_message(b"answer")] == [event.data for event in seen if isinstance(event, DataReceived)]
    assert statuses(seen) == ["0"]
    assert any(isinstance(event, StreamEnded) for event in seen)


def test_repeated_header_blocks_mean_the_same() -> None:
    """Calls with the same headers are the same to us, however the client compresses them, and others are not."""
    wire = Wire()
    other = [(name, "/other" if name == ":path" else value) for name, value in CALL]
    paths = []
    for headers in (CALL, CALL, CALL, other, other, CALL, other, CALL):
        wire.call(encode_message(b""), headers=headers)
        heard, _ = wire.exchange()
        paths += [event.path for event in heard if isinstance(event, Request)]
    allocate = "/v1beta1.DevicePlugin/Allocate"
    assert [allocate, allocate, allocate, "/other", "/other", allocate, "/other", allocate] == paths


def test_memory_for_header_blocks_is_bounded() -> None:
    """A client that never repeats itself fills no memory of ours."""
    wire = Wire()
    fields = [(f"x-{number}", "y") for number in range(8)]
    wire.client.send_headers(1, [*CALL, *fields], end_stream=True)
    wire.exchange()
    for mask in range(256):
        wire.call(encode_message(b""), headers=[*CALL, *(f for bit, f in enumerate(fields) if mask >> bit & 1)])
        heard, _ = wire.exchange()
        for event in heard:
            assert isinstance(event, Request)
            wire.server.sender.answer(event.stream_id, b"")
    assert len(wire.server._heads) <= http2.MAX_HEADS


@pytest.mark.parametrize("piece", [1, 7, 24, 100])
def test_bytes_may_come_in_any_pieces(piece: int) -> None:
    """However the bytes are cut up, the same calls are heard."""
    wire = Wire()
    client = H2Connection(H2Configuration(client_side=True))
    client.initiate_connection()
    wire.client, wire.server = client, ServerConnection()
    first, second = wire.call(encode_message(b"a" * 50)), wire.call(encode_message(b"b"))
    data = client.data_to_send()
    heard = [event for at in range(0, len(data), piece) for event in wire.server.receive(data[at : at + piece])]
    assert [(first, b"a" * 50), (second, b"b")] == [(e.stream_id, e.message) for e in heard if isinstance(e, Request)]


def test_large_request_gets_room_and_is_heard() -> None:
    """A request of several windows is let through, up to the limit of a message."""
    wire = Wire()
    body = encode_message(bytes(3 * 1024 * 1024))
    wire.client.send_headers(1, CALL)
    heard: list[http2.Event] = []
    while body:
        size = min(len(body), wire.client.local_flow_control_window(1), 16_384)
        assert size, "the client was never given room for the rest"
        wire.client.send_data(1, body[:size], end_stream=size == len(body))
        body = body[size:]
        heard += wire.exchange()[0]
    (event,) = heard
    assert isinstance(event, Request)
    assert len(event.message) == 3 * 1024 * 1024


def test_oversized_request_is_refused_before_it_is_read() -> None:
    """The prefix alone is enough to refuse a message over the limit; the call is over, the connection is not."""
    wire = Wire(limit=1000)
    wire.client.send_headers(1, CALL)
    wire.client.send_data(1, struct.pack(">BI", 0, 5_000_000) + b"x" * 100)
    heard, seen = wire.exchange()
    assert not heard
    assert [str(Status.RESOURCE_EXHAUSTED.value)] == statuses(seen)
    assert any(isinstance(event, StreamReset) for event in seen)
    stream_id = wire.call(encode_message(b"small"))
    assert [stream_id] == [event.stream_id for event in wire.exchange()[0]]


def test_late_data_of_a_refused_call_is_ignored() -> None:
    """What is still under way when a call is refused harms nobody, and its header blocks still count."""
    server = greeted()
    call = frames.encode_header(b":method", b"GET")
    server.receive(raw(frames.HEADERS, frames.END_HEADERS, 1, call))
    assert server.receive(raw(frames.DATA, 0, 1, bytes(100))) == []
    assert server.receive(raw(frames.HEADERS, frames.END_HEADERS | frames.END_STREAM, 1, call)) == []


@pytest.mark.parametrize("body", [b"", b"\0\0\0\0\x09abc", b"\1\0\0\0\0"])
def test_malformed_bodies_end_the_call_only(body: bytes) -> None:
    """A body that is no message is answered with a status; the next call is served."""
    wire = Wire()
    wire.call(body)
    heard, seen = wire.exchange()
    assert not heard
    assert ["0"] != statuses(seen) != []
    wire.call(encode_message(b""))
    assert wire.exchange()[0]


def test_client_trailers_end_a_request() -> None:
    """A request may end with trailers instead of its last data."""
    wire = Wire()
    wire.client.send_headers(1, CALL)
    wire.client.send_data(1, encode_message(b"q"))
    wire.client.send_headers(1, [("x", "y")], end_stream=True)
    assert [Request(1, "/v1beta1.DevicePlugin/Allocate", b"q")] == wire.exchange()[0]


def test_padding_and_priority_are_stripped() -> None:
    """Padding and priorities change nothing in what is heard."""
    wire = Wire()
    wire.client.send_headers(1, CALL, priority_weight=5, priority_depends_on=0)
    wire.client.send_data(1, encode_message(b"q"), end_stream=True, pad_length=20)
    wire.client.prioritize(1, weight=7)
    assert [Request(1, "/v1beta1.DevicePlugin/Allocate", b"q")] == wire.exchange()[0]


def test_header_block_in_parts() -> None:
    """A header block that is spread over several frames is put together."""
    wire = Wire()
    wire.client.send_headers(1, [*CALL, *((f"x-{number}", "v" * 3000) for number in range(15))], end_stream=False)
    wire.client.send_data(1, encode_message(b"q"), end_stream=True)
    assert [Request(1, "/v1beta1.DevicePlugin/Allocate", b"q")] == wire.exchange()[0]


def test_reset_cancels_a_call_once() -> None:
    """A call that the client gives up, complete or not, is reported as such, and answers to it vanish."""
    wire = Wire()
    first = wire.call(encode_message(b"q"))
    wire.client.send_headers(3, CALL)
    wire.exchange()
    wire.client.reset_stream(first)
    wire.client.reset_stream(3)
    assert [Cancelled(first), Cancelled(3)] == wire.exchange()[0]
    wire.server.sender.answer(first, b"late")
    assert wire.read() == []
    assert wire.server.receive(frames.encode_reset(first, 8)) == []


def test_ping_is_answered() -> None:
    """A bandwidth probe gets its answer, an answer gets none."""
    wire = Wire()
    wire.client.ping(b"12345678")
    assert any(isinstance(event, PingAckReceived) for event in wire.exchange()[1])
    assert wire.server.receive(raw(frames.PING, frames.ACK, 0, bytes(8))) == []
    assert wire.server.sender.take_output() == b""


def test_drained_is_told_when_the_window_opens() -> None:
    """A stream that had to wait for the client is reported when everything has left."""
    wire = Wire()
    stream_id = wire.call(encode_message(b"q"))
    wire.exchange()
    wire.server.sender.send(stream_id, bytes(100_000))
    for event in wire.read():
        if isinstance(event, DataReceived):
            wire.client.acknowledge_received_data(event.flow_controlled_length, stream_id)
    heard, seen = wire.exchange()
    assert [Drained(stream_id)] == heard
    assert any(isinstance(event, DataReceived) for event in seen)


def test_settings_may_open_a_window() -> None:
    """A larger initial window lets waiting answers go, and larger frames are used."""
    server = greeted()
    server.receive(frames.encode_settings({frames.SETTING_INITIAL_WINDOW_SIZE: 0, 0x99: 1}))
    call = b"".join(frames.encode_header(k.encode(), v.encode()) for k, v in CALL)
    server.receive(raw(frames.HEADERS, frames.END_HEADERS, 1, call))
    server.receive(raw(frames.DATA, frames.END_STREAM, 1, encode_message(b"")))
    server.sender.answer(1, b"x" * 20_000)
    assert not server.sender.is_drained(1)
    settings = {frames.SETTING_MAX_FRAME_SIZE: 1 << 20, frames.SETTING_INITIAL_WINDOW_SIZE: 50_000}
    assert [Drained(1)] == server.receive(frames.encode_settings(settings))
    assert b"x" * 20_000 in server.sender.take_output()


def test_too_many_calls_are_turned_away() -> None:
    """One call over the limit is refused so that the client may try again; the others go on."""
    server = greeted()
    call = b"".join(frames.encode_header(k.encode(), v.encode()) for k, v in CALL)
    for number in range(http2.MAX_STREAMS + 1):
        server.receive(raw(frames.HEADERS, frames.END_HEADERS, 2 * number + 1, call))
    assert frames.encode_reset(2 * http2.MAX_STREAMS + 1, frames.REFUSED_STREAM) in server.sender.take_output()
    assert len(server.sender) == http2.MAX_STREAMS


def test_unfinished_requests_are_bounded_together() -> None:
    """Many large requests that never end break the connection rather than fill the memory."""
    server = greeted()
    call = b"".join(frames.encode_header(k.encode(), v.encode()) for k, v in CALL)
    start = struct.pack(">BI", 0, http2.MAX_MESSAGE_BYTES)
    flood = b"".join(
        raw(frames.HEADERS, frames.END_HEADERS, stream_id, call)
        + raw(frames.DATA, 0, stream_id, start)
        + 200 * raw(frames.DATA, 0, stream_id, bytes(16_000))
        for stream_id in range(1, 13, 2)
    )
    with pytest.raises(ConnectionBroken, match="too much"):
        server.receive(flood)


def test_connection_credit_is_given_back() -> None:
    """Data of calls that are over counts too: the connection's window never dries up."""
    server = greeted()
    call = frames.encode_header(b":method", b"GET")
    server.receive(raw(frames.HEADERS, frames.END_HEADERS, 1, call))
    server.sender.take_output()
    for _ in range(http2.CONNECTION_WINDOW_BYTES // 2 // 16_000 + 1):
        server.receive(raw(frames.DATA, 0, 1, bytes(16_000)))
    assert raw(frames.WINDOW_UPDATE, 0, 0)[3:9] in server.sender.take_output()


def test_farewell_of_a_client_changes_nothing() -> None:
    """A client that will open no more calls still gets the answers to those it has opened."""
    wire = Wire()
    stream_id = wire.call(encode_message(b"q"))
    heard, _ = wire.exchange()
    assert wire.server.receive(frames.encode_goaway(0, 0)) == []
    assert len(heard) == 1
    wire.server.sender.answer(stream_id, b"a")
    assert statuses(wire.read()) == ["0"]


def test_unknown_frames_are_ignored() -> None:
    """A kind of frame that nobody knows yet is skipped."""
    server = greeted()
    assert server.receive(raw(0x55, 0xFF, 7, b"whatever")) == []


HEADERS_OPEN = raw(frames.HEADERS, 0, 1, b"")


@pytest.mark.parametrize(
    "data",
    [
        pytest.param(b"\xff\xff\xff\0\0\0\0\0\0", id="frame over the limit"),
        pytest.param(raw(frames.DATA, 0, 0, b"x"), id="data on stream 0"),
        pytest.param(raw(frames.DATA, 0, 5, b"x"), id="data on an idle stream"),
        pytest.param(raw(frames.HEADERS, frames.END_HEADERS, 0, b""), id="headers on stream 0"),
        pytest.param(raw(frames.HEADERS, frames.END_HEADERS, 2, b""), id="headers on an even stream"),
        pytest.param(raw(frames.HEADERS, frames.END_HEADERS, 1, b"\xff\xff\xff\xff\xff"), id="undecodable headers"),
        pytest.param(raw(frames.HEADERS, frames.END_HEADERS, 1, b"\x80"), id="header index 0"),
        pytest.param(raw(frames.HEADERS, frames.END_HEADERS | frames.PADDED, 1, b""), id="padded nothing"),
        pytest.param(raw(frames.HEADERS, frames.END_HEADERS | frames.PADDED, 1, b"\x09a"), id="too much padding"),
        pytest.param(HEADERS_OPEN + raw(frames.PING, 0, 0, bytes(8)), id="interrupted header block"),
        pytest.param(HEADERS_OPEN + raw(frames.CONTINUATION, 4, 3, b""), id="continuation of another stream"),
        pytest.param(HEADERS_OPEN + 20 * raw(frames.CONTINUATION, 0, 1, b""), id="endless empty continuations"),
        pytest.param(HEADERS_OPEN + 6 * raw(frames.CONTINUATION, 0, 1, bytes(16_000)), id="endless headers"),
        pytest.param(raw(frames.CONTINUATION, 0, 1, b""), id="continuation of nothing"),
        pytest.param(raw(frames.PRIORITY, 0, 1, b"x"), id="short priority"),
        pytest.param(raw(frames.RST_STREAM, 0, 1, b"x"), id="short reset"),
        pytest.param(frames.encode_reset(0, 0), id="reset of stream 0"),
        pytest.param(frames.encode_reset(9, 0), id="reset of an idle stream"),
        pytest.param(raw(frames.SETTINGS, 0, 1), id="settings on a stream"),
        pytest.param(raw(frames.SETTINGS, 0, 0, b"x"), id="odd settings"),
        pytest.param(raw(frames.SETTINGS, frames.ACK, 0, bytes(6)), id="acknowledgement with content"),
        pytest.param(frames.encode_settings({frames.SETTING_INITIAL_WINDOW_SIZE: 2**31}), id="initial window"),
        pytest.param(frames.encode_settings({frames.SETTING_MAX_FRAME_SIZE: 1}), id="frame size"),
        pytest.param(raw(frames.PUSH_PROMISE, 0, 1, bytes(8)), id="push"),
        pytest.param(raw(frames.PING, 0, 0, b"x"), id="short ping"),
        pytest.param(raw(frames.PING, 0, 1, bytes(8)), id="ping on a stream"),
        pytest.param(raw(frames.WINDOW_UPDATE, 0, 0, b"x"), id="short window update"),
        pytest.param(frames.encode_window_update(0, 0), id="window update of nothing"),
        pytest.param(frames.encode_window_update(0, 2**31 - 1), id="window overflow"),
    ],
)
def test_broken_protocol_ends_the_connection_with_a_reason(data: bytes) -> None:
    """What no client may send breaks the connection, and the farewell says why."""
    server = greeted()
    with pytest.raises(ConnectionBroken) as broken:
        server.receive(data)
    assert broken.value.code
    assert frames.encode_goaway(0, broken.value.code, broken.value.reason)[8:] in server.sender.take_output()[8:]


@pytest.mark.parametrize(
    "data",
    [
        b"GET / HTTP/1.1\r\n\r\n",
        b"PRI * HTTP/2.0\r\n\r\nSX",
        b"\x16\x03\x01",
        frames.PREFACE + raw(frames.PING, 0, 0, bytes(8)),
    ],
)
def test_other_protocols_are_turned_away(data: bytes) -> None:
    """Whoever does not begin as HTTP/2 begins is no client of ours."""
    with pytest.raises(ConnectionBroken):
        ServerConnection().receive(data)


def test_settings_that_overflow_an_open_window_break_the_connection() -> None:
    """A window that was grown and is then moved beyond the limit is a defect of the peer."""
    server = greeted()
    call = b"".join(frames.encode_header(k.encode(), v.encode()) for k, v in CALL)
    server.receive(raw(frames.HEADERS, frames.END_HEADERS, 1, call))
    server.receive(frames.encode_window_update(1, 2**31 - 1 - frames.DEFAULT_WINDOW_BYTES))
    with pytest.raises(ConnectionBroken, match="initial window"):
        server.receive(frames.encode_settings({frames.SETTING_INITIAL_WINDOW_SIZE: 2**31 - 1}))
