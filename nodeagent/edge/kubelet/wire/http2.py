"""One HTTP/2 connection as its server sees it: bytes in, requests out. No I/O, no waiting.

It owns framing, header blocks and limits; answers go through its `Sender`.
It refuses what a kubelet never sends: pushes, endless header blocks, bodies over the limit, more than 128 calls
at once.
"""

from typing import Final, NamedTuple

from hpack import Decoder
from hpack.exceptions import HPACKError

from nodeagent.edge.kubelet.wire import frames
from nodeagent.edge.kubelet.wire.grpc_status import Head, Refusal, judge_body, parse_head, parse_message
from nodeagent.edge.kubelet.wire.sender import Sender, WindowOverflowed

MAX_STREAMS: Final = 128
MAX_MESSAGE_BYTES: Final = 4 * 1024 * 1024
MAX_HEADER_BYTES: Final = 64 * 1024
MAX_HEADER_FRAMES: Final = 16
MAX_HEADS: Final = 64
MAX_BUFFERED_BYTES: Final = 16 * 1024 * 1024
"""What unfinished requests may hold together, on one connection."""
STREAM_WINDOW_BYTES: Final = 1024 * 1024
CONNECTION_WINDOW_BYTES: Final = 4 * 1024 * 1024

# A header block of one-byte references into the tables changes no table: the same bytes mean the same fields
# until some other block changes one.
_REFERENCES: Final = bytes(range(0x81, 0xFF))


class ConnectionBroken(Exception):
    """The peer broke the protocol; the farewell is in the output, the connection must be closed."""

    def __init__(self, code: int, reason: str) -> None:
        super().__init__(f"the peer broke HTTP/2: {reason} (code {code})")
        self.code, self.reason = code, reason


class Request(NamedTuple):
    """A complete request."""

    stream_id: int
    path: str
    message: bytes


class Cancelled(NamedTuple):
    """The peer does not want the answer any more."""

    stream_id: int


class Drained(NamedTuple):
    """Everything said so far on this stream has left."""

    stream_id: int


Event = Request | Cancelled | Drained


class _Incoming:
    """A request whose body has not ended yet."""

    __slots__ = ("body", "consumed", "head")

    def __init__(self, head: Head) -> None:
        self.head = head
        self.body = bytearray()
        self.consumed = 0


class _HeaderBlock(NamedTuple):
    """A header block whose last part has not come yet."""

    stream_id: int
    flags: int
    parts: list[bytes]


class ServerConnection:
    """The state of one connection: feed what was read to `receive`, then send what `sender` has to say."""

    def __init__(self, max_message_bytes: int = MAX_MESSAGE_BYTES) -> None:
        self.sender = Sender()
        self._max_message_bytes = max_message_bytes
        self._unread = b""
        self._preface_seen = self._settings_seen = False
        self._decoder = Decoder(max_header_list_size=MAX_HEADER_BYTES)
        self._heads: dict[bytes, Head] = {}
        self._block: _HeaderBlock | None = None
        self._incoming: dict[int, _Incoming] = {}
        self._last_stream_id = 0
        self._consumed = self._buffered = 0
        self._events: list[Event] = []
        settings = {
            frames.SETTING_MAX_CONCURRENT_STREAMS: MAX_STREAMS,
            frames.SETTING_INITIAL_WINDOW_SIZE: STREAM_WINDOW_BYTES,
            frames.SETTING_MAX_HEADER_LIST_SIZE: MAX_HEADER_BYTES,
        }
        self.sender.put(frames.encode_settings(settings))
        self.sender.put(frames.encode_window_update(0, CONNECTION_WINDOW_BYTES - frames.DEFAULT_WINDOW_BYTES))

    def receive(self, data: bytes) -> list[Event]:
        """What the peer's bytes mean.

        Raises:
            ConnectionBroken: they make no sense; send the output and close.
        """
        try:
            self._receive(data)
        except ConnectionBroken as broken:
            self.sender.put(frames.encode_goaway(self._last_stream_id, broken.code, broken.reason))
            raise
        events, self._events = self._events, []
        return events

    def _receive(self, data: bytes) -> None:
        if self._unread:
            data = self._unread + data
        position = self._skip_preface(data)
        end = len(data)
        while self._preface_seen and end - position >= frames.FRAME_HEADER_BYTES:
            size, kind, flags, stream_id = frames.parse_frame_header(data, position)
            if size > frames.DEFAULT_MAX_FRAME_BYTES:
                raise ConnectionBroken(frames.FRAME_SIZE_ERROR, f"a frame of {size} bytes")
            body = position + frames.FRAME_HEADER_BYTES
            if end - body < size:
                break
            position = body + size
            self._receive_frame(kind, flags, stream_id, data[body:position])
        self._unread = data[position:]

    def _skip_preface(self, data: bytes) -> int:
        if self._preface_seen:
            return 0
        if not data.startswith(frames.PREFACE[: len(data)]):
            raise ConnectionBroken(frames.PROTOCOL_ERROR, "no HTTP/2 preface")
        self._preface_seen = len(data) >= len(frames.PREFACE)
        return len(frames.PREFACE) if self._preface_seen else 0

    def _receive_frame(self, kind: int, flags: int, stream_id: int, payload: bytes) -> None:
        if self._block is not None and (kind != frames.CONTINUATION or stream_id != self._block.stream_id):
            raise ConnectionBroken(frames.PROTOCOL_ERROR, "a header block was interrupted")
        if not self._settings_seen and kind != frames.SETTINGS:
            raise ConnectionBroken(frames.PROTOCOL_ERROR, "the first frame is not SETTINGS")
        if kind == frames.HEADERS:
            self._receive_headers(flags, stream_id, payload)
        elif kind == frames.DATA:
            self._receive_data(flags, stream_id, payload)
        else:
            self._receive_control(kind, flags, stream_id, payload)

    def _receive_control(self, kind: int, flags: int, stream_id: int, payload: bytes) -> None:
        match kind:
            case frames.PRIORITY:
                _expect_size("PRIORITY", payload, 5)
            case frames.RST_STREAM:
                self._receive_reset(stream_id, payload)
            case frames.SETTINGS:
                self._receive_settings(flags, stream_id, payload)
            case frames.PUSH_PROMISE:
                raise ConnectionBroken(frames.PROTOCOL_ERROR, "a push from the client")
            case frames.PING:
                self._receive_ping(flags, stream_id, payload)
            case frames.WINDOW_UPDATE:
                self._receive_window_update(stream_id, payload)
            case frames.CONTINUATION:
                self._receive_continuation(flags, payload)
            case _:
                # GOAWAY: the client opens no more streams, those that are open go on until it closes.
                # A kind that is not known must be ignored (RFC 9113, 5.5).
                pass

    # Requests.

    def _receive_headers(self, flags: int, stream_id: int, payload: bytes) -> None:
        if not stream_id & 1:
            raise ConnectionBroken(frames.PROTOCOL_ERROR, f"a request on stream {stream_id}")
        block = _strip_padding(flags, payload)
        if flags & frames.HAS_PRIORITY:
            block = block[5:]
        if flags & frames.END_HEADERS:
            self._receive_block(flags, stream_id, block)
        else:
            self._block = _HeaderBlock(stream_id, flags, [block])

    def _receive_continuation(self, flags: int, payload: bytes) -> None:
        if self._block is None:
            raise ConnectionBroken(frames.PROTOCOL_ERROR, "a CONTINUATION of nothing")
        stream_id, first_flags, parts = self._block
        parts.append(payload)
        if len(parts) > MAX_HEADER_FRAMES or sum(map(len, parts)) > MAX_HEADER_BYTES:
            raise ConnectionBroken(frames.ENHANCE_YOUR_CALM, "an endless header block")
        if flags & frames.END_HEADERS:
            self._block = None
            self._receive_block(first_flags, stream_id, b"".join(parts))

    def _receive_block(self, flags: int, stream_id: int, block: bytes) -> None:
        # Decoded even when the stream is refused: each block may change the table that the next one refers to.
        head = self._heads.get(block) or self._decode(block)
        if stream_id > self._last_stream_id:
            self._last_stream_id = stream_id
            self._open(stream_id, head)
        if flags & frames.END_STREAM and stream_id in self._incoming:
            self._complete(stream_id)

    def _decode(self, block: bytes) -> Head:
        try:
            head = parse_head(self._decoder.decode(block, raw=True))
        except HPACKError as error:
            raise ConnectionBroken(frames.COMPRESSION_ERROR, "a header block that cannot be decoded") from error
        if block.translate(None, _REFERENCES) or len(self._heads) >= MAX_HEADS:
            self._heads.clear()
        else:
            self._heads[block] = head
        return head

    def _open(self, stream_id: int, head: Head) -> None:
        if len(self.sender) >= MAX_STREAMS:
            self.sender.put(frames.encode_reset(stream_id, frames.REFUSED_STREAM))
            return
        self.sender.open(stream_id)
        self._incoming[stream_id] = _Incoming(head)
        if head.refusal:
            self._refuse(stream_id, head.refusal)

    def _receive_data(self, flags: int, stream_id: int, payload: bytes) -> None:
        if not stream_id or stream_id > self._last_stream_id:
            raise ConnectionBroken(frames.PROTOCOL_ERROR, f"data on stream {stream_id}, which is not open")
        self._give_credit(len(payload))
        incoming = self._incoming.get(stream_id)
        if incoming is None:
            return
        data = _strip_padding(flags, payload)
        incoming.body += data
        self._buffered += len(data)
        if self._buffered > MAX_BUFFERED_BYTES:
            raise ConnectionBroken(frames.ENHANCE_YOUR_CALM, "too much in unfinished requests")
        if flags & frames.END_STREAM:
            self._complete(stream_id)
        else:
            self._await_more(stream_id, incoming, len(payload))

    def _await_more(self, stream_id: int, incoming: _Incoming, size: int) -> None:
        refusal = judge_body(incoming.body, self._max_message_bytes)
        if refusal:
            self._refuse(stream_id, refusal)
            return
        incoming.consumed += size
        if incoming.consumed >= STREAM_WINDOW_BYTES // 2:
            self.sender.put(frames.encode_window_update(stream_id, incoming.consumed))
            incoming.consumed = 0

    def _give_credit(self, size: int) -> None:
        self._consumed += size
        if self._consumed >= CONNECTION_WINDOW_BYTES // 2:
            self.sender.put(frames.encode_window_update(0, self._consumed))
            self._consumed = 0

    def _complete(self, stream_id: int) -> None:
        incoming = self._forget(stream_id)
        message = parse_message(bytes(incoming.body), self._max_message_bytes)
        if isinstance(message, Refusal):
            self.sender.finish(stream_id, *message)
        else:
            self._events.append(Request(stream_id, incoming.head.path, message))

    def _refuse(self, stream_id: int, refusal: Refusal) -> None:
        self._forget(stream_id)
        self.sender.finish(stream_id, *refusal)
        # The answer is complete but the request is not: nothing more of it is wanted (RFC 9113, 8.1).
        self.sender.put(frames.encode_reset(stream_id, frames.NO_ERROR))

    def _forget(self, stream_id: int) -> _Incoming:
        incoming = self._incoming.pop(stream_id)
        self._buffered -= len(incoming.body)
        return incoming

    # Everything else.

    def _receive_reset(self, stream_id: int, payload: bytes) -> None:
        _expect_size("RST_STREAM", payload, 4)
        if not stream_id or stream_id > self._last_stream_id:
            raise ConnectionBroken(frames.PROTOCOL_ERROR, f"a reset of stream {stream_id}, which is not open")
        if stream_id in self._incoming:
            self._forget(stream_id)
        if stream_id in self.sender:
            self.sender.drop(stream_id)
            self._events.append(Cancelled(stream_id))

    def _receive_settings(self, flags: int, stream_id: int, payload: bytes) -> None:
        if stream_id:
            raise ConnectionBroken(frames.PROTOCOL_ERROR, f"settings on stream {stream_id}")
        if len(payload) % 6 or (flags & frames.ACK and payload):
            raise ConnectionBroken(frames.FRAME_SIZE_ERROR, f"settings of {len(payload)} bytes")
        self._settings_seen = True
        if flags & frames.ACK:
            return
        for key, value in frames.parse_settings(payload):
            self._apply_setting(key, value)
        self.sender.put(frames.encode_frame(frames.SETTINGS, frames.ACK, 0))

    def _apply_setting(self, key: int, value: int) -> None:
        if key == frames.SETTING_INITIAL_WINDOW_SIZE:
            try:
                self._events += map(Drained, self.sender.set_initial_window(value))
            except WindowOverflowed as error:
                raise ConnectionBroken(frames.FLOW_CONTROL_ERROR, f"an initial window of {value} bytes") from error
        elif key == frames.SETTING_MAX_FRAME_SIZE:
            if not frames.DEFAULT_MAX_FRAME_BYTES <= value <= frames.LARGEST_MAX_FRAME_BYTES:
                raise ConnectionBroken(frames.PROTOCOL_ERROR, f"frames of {value} bytes")
            self.sender.set_max_frame(value)

    def _receive_ping(self, flags: int, stream_id: int, payload: bytes) -> None:
        _expect_size("PING", payload, 8)
        if stream_id:
            raise ConnectionBroken(frames.PROTOCOL_ERROR, f"a ping on stream {stream_id}")
        if not flags & frames.ACK:
            self.sender.put(frames.encode_frame(frames.PING, frames.ACK, 0, payload))

    def _receive_window_update(self, stream_id: int, payload: bytes) -> None:
        _expect_size("WINDOW_UPDATE", payload, 4)
        credit = frames.parse_word(payload)
        if not credit:
            raise ConnectionBroken(frames.PROTOCOL_ERROR, "a window update of nothing")
        try:
            self._events += map(Drained, self.sender.grant(stream_id, credit))
        except WindowOverflowed as error:
            raise ConnectionBroken(frames.FLOW_CONTROL_ERROR, f"a window update of {credit} bytes") from error


def _strip_padding(flags: int, payload: bytes) -> bytes:
    if not flags & frames.PADDED:
        return payload
    if not payload or payload[0] >= len(payload):
        raise ConnectionBroken(frames.PROTOCOL_ERROR, "padding longer than its frame")
    return payload[1 : len(payload) - payload[0]]


def _expect_size(name: str, payload: bytes, size: int) -> None:
    if len(payload) != size:
        raise ConnectionBroken(frames.FRAME_SIZE_ERROR, f"a {name} of {len(payload)} bytes")
