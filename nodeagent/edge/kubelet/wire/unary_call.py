"""One unary call on a connection of its own, as its caller sees it: bytes in, an answer out. No I/O, no waiting.

Owns what is sent first and what the peer's frames mean. Refuses reuse: the kubelet is asked seldom, and a connection
that ends with its call has no state that could go stale over a kubelet's restart.
"""

from typing import Final
from urllib.parse import unquote

from grpclib.const import Status
from hpack import Decoder
from hpack.exceptions import HPACKError

from nodeagent.edge.kubelet.wire import frames
from nodeagent.edge.kubelet.wire.grpc_status import Refusal, encode_message, parse_message

MAX_ANSWER_BYTES: Final = 64 * 1024 * 1024
"""A node's whole account is a few hundred kilobytes; a peer that goes on for ever is cut off here."""
MAX_HEADER_BYTES: Final = 64 * 1024
_STREAM: Final = 1
_FRAME_BYTES_MAX: Final = 1024 * 1024
# The static table's `:method: POST` and `:scheme: http`; what begins with a colon must come before the rest.
_HEAD: Final = b"\x83\x86" + frames.encode_header(b":authority", b"localhost")
_REST: Final = frames.encode_header(b"te", b"trailers") + frames.encode_header(
    b"content-type", b"application/grpc+proto"
)
_OPENING: Final = (
    frames.PREFACE
    + frames.encode_settings(
        {
            frames.SETTING_INITIAL_WINDOW_SIZE: MAX_ANSWER_BYTES,
            frames.SETTING_MAX_FRAME_SIZE: _FRAME_BYTES_MAX,
            frames.SETTING_MAX_HEADER_LIST_SIZE: MAX_HEADER_BYTES,
        }
    )
    + frames.encode_window_update(0, MAX_ANSWER_BYTES - frames.DEFAULT_WINDOW_BYTES)
)


class AnswerRefused(Exception):
    """The peer has understood the call and says no."""

    def __init__(self, status: Status, text: str) -> None:
        super().__init__(text or status.name)
        self.status, self.text = status, text


class AnswerBroken(Exception):
    """What came, or did not come, is no answer."""


class UnaryCall:
    """The state of one call: send `opening`, feed what is read to `receive` until there is an `answer`."""

    def __init__(self, method: str, request: bytes, timeout_seconds: float) -> None:
        """Prepare the call; the request fits into one frame, as everything does that the kubelet is asked."""
        timeout = f"{max(1, int(timeout_seconds * 1000))}m".encode()
        path = frames.encode_header(b":path", method.encode())
        block = _HEAD + path + _REST + frames.encode_header(b"grpc-timeout", timeout)
        self.opening = (
            _OPENING
            + frames.encode_frame(frames.HEADERS, frames.END_HEADERS, _STREAM, block)
            + frames.encode_frame(frames.DATA, frames.END_STREAM, _STREAM, encode_message(request))
        )
        self.answer: bytes | None = None
        self._decoder = Decoder(max_header_list_size=MAX_HEADER_BYTES)
        self._unread = bytearray()
        self._block: bytearray | None = None
        self._ends = False
        self._fields: dict[bytes, bytes] = {}
        self._body = bytearray()

    def receive(self, data: bytes) -> bytes:
        """Take in what was read; what has to be sent because of it.

        Raises:
            AnswerRefused: the peer says no.
            AnswerBroken: the peer makes no sense, or ends the call.
        """
        self._unread += data
        position, reply = 0, b""
        while self.answer is None and len(self._unread) - position >= frames.FRAME_HEADER_BYTES:
            size, kind, flags, stream_id = frames.parse_frame_header(self._unread, position)
            if size > _FRAME_BYTES_MAX:
                raise AnswerBroken(f"a frame of {size} bytes")
            body = position + frames.FRAME_HEADER_BYTES
            if len(self._unread) - body < size:
                break
            position = body + size
            reply += self._receive_frame(kind, flags, stream_id, bytes(self._unread[body:position]))
        del self._unread[:position]
        return reply

    def _receive_frame(self, kind: int, flags: int, stream_id: int, payload: bytes) -> bytes:
        if self._block is not None and kind != frames.CONTINUATION:
            raise AnswerBroken("a header block was interrupted")
        match kind:
            case frames.SETTINGS | frames.PING:
                return b"" if flags & frames.ACK else _acknowledge(kind, payload)
            case frames.HEADERS | frames.CONTINUATION | frames.DATA | frames.RST_STREAM if stream_id == _STREAM:
                self._receive_ours(kind, flags, payload)
            case frames.GOAWAY if len(payload) >= 8 and frames.parse_word(payload[:4]) < _STREAM:
                raise AnswerBroken("the connection was closed without taking the call")
            case _:
                pass  # windows are wider than any request; what is not known must be ignored (RFC 9113, 5.5)
        return b""

    def _receive_ours(self, kind: int, flags: int, payload: bytes) -> None:
        match kind:
            case frames.RST_STREAM:
                code = int.from_bytes(payload[:4], "big")
                raise AnswerBroken(f"the call was ended with HTTP/2 code {code}")
            case frames.DATA:
                self._body += _strip_padding(flags, payload)
                if len(self._body) > MAX_ANSWER_BYTES:
                    raise AnswerBroken(f"an answer of more than {MAX_ANSWER_BYTES} bytes")
                self._ends = bool(flags & frames.END_STREAM)
            case frames.HEADERS:
                self._ends = bool(flags & frames.END_STREAM)
                block = _strip_padding(flags, payload)
                self._block = bytearray()
                self._extend_block(self._block, block[5:] if flags & frames.HAS_PRIORITY else block)
            case _:
                self._extend_block(self._block, payload)
        if self._block is not None and flags & frames.END_HEADERS:
            self._fields |= self._decode(bytes(self._block))
            self._block = None
        if self._ends and self._block is None:
            self.answer = self._finish()

    @staticmethod
    def _extend_block(block: bytearray | None, part: bytes) -> None:
        if block is None:
            raise AnswerBroken("a CONTINUATION of nothing")
        block += part
        if len(block) > MAX_HEADER_BYTES:
            raise AnswerBroken("an endless header block")

    def _decode(self, block: bytes) -> dict[bytes, bytes]:
        try:
            return dict(self._decoder.decode(block, raw=True))
        except HPACKError as error:
            raise AnswerBroken("a header block that cannot be decoded") from error

    def _finish(self) -> bytes:
        if self._fields.get(b":status") != b"200":
            status = self._fields.get(b":status", b"").decode("ascii", "replace") or "none"
            raise AnswerBroken(f"HTTP status {status}")
        code = self._fields.get(b"grpc-status", b"")
        if code != b"0":
            text = self._fields.get(b"grpc-message", b"").decode("ascii", "replace")
            raise AnswerRefused(_read_status(code), unquote(text))
        message = parse_message(bytes(self._body), MAX_ANSWER_BYTES)
        if isinstance(message, Refusal):
            raise AnswerBroken(message.text)
        return message


def _read_status(code: bytes) -> Status:
    try:
        return Status(int(code))
    except ValueError as error:
        raise AnswerBroken(f"gRPC status {code.decode('ascii', 'replace') or 'missing'}") from error


def _acknowledge(kind: int, payload: bytes) -> bytes:
    return frames.encode_frame(kind, frames.ACK, 0, payload if kind == frames.PING else b"")


def _strip_padding(flags: int, payload: bytes) -> bytes:
    if not flags & frames.PADDED:
        return payload
    if not payload or payload[0] >= len(payload):
        raise AnswerBroken("padding longer than its frame")
    return payload[1 : len(payload) - payload[0]]
