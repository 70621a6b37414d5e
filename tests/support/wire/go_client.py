"""A caller that speaks as the kubelet's gRPC for Go does and costs little, so that what is timed is the plugin.

Frames as grpc-go sends them: header fields that HPACK remembers, HEADERS and DATA in one write, and after an answer the
window update and the PING by which it measures the line. Its writer gathers what is said at about the same time, so
that these leave in one write with a call that follows at once, and by themselves when none does.
Blocking, one call at a time, as the kubelet admits pods.
"""

import socket
from pathlib import Path
from typing import Final

from hpack import Decoder, Encoder

from tests.support.wire import http2_frames as frames

USER_AGENT: Final = "grpc-go/1.79.1"
PATIENCE_SECONDS: Final = 30.0
_REFERENCES: Final = bytes(range(0x81, 0xFF))
_BANDWIDTH_PING: Final = frames.encode_frame(frames.PING, 0, 0, bytes((2, 4, 16, 16, 9, 14, 7, 7)))
_READ_BYTES: Final = 32_768
"""As much as grpc-go reads at once."""


class CallFailed(Exception):
    """The server's answer was an error."""


class _Answer:
    """One call: what the server takes of it still, and what has come of it."""

    def __init__(self, stream: int, window: int) -> None:
        self.stream, self.window = stream, window
        self.body = bytearray()
        self.fields: dict[bytes, bytes] = {}
        self.ended = False


class GoClient:
    """One connection to a gRPC server on a unix socket."""

    def __init__(self, path: Path) -> None:
        self._line = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        self._line.settimeout(PATIENCE_SECONDS)
        self._line.connect(str(path))
        self._line.sendall(frames.PREFACE + frames.encode_settings({}))
        self._encoder, self._decoder = Encoder(), Decoder()
        self._blocks: dict[str, bytes] = {}
        self._known_fields: dict[bytes, dict[bytes, bytes]] = {}
        self._unread = b""
        self._next_stream = 1
        self._ping_is_out = False
        self._gathered = b""
        self._window = self._initial_window = frames.DEFAULT_WINDOW_BYTES
        self._has_settings = False
        while not self._has_settings:
            self._read(None)

    def close(self) -> None:
        self._line.close()

    def flush(self) -> None:
        """Send what waits for the next call: none comes now."""
        gathered, self._gathered = self._gathered, b""
        if gathered:
            self._line.sendall(gathered)

    def call(self, method: str, message: bytes) -> bytes:
        """The answer to one unary call.

        Raises:
            CallFailed: it is an error.
        """
        stream, self._next_stream = self._next_stream, self._next_stream + 2
        body = b"\0" + len(message).to_bytes(4, "big") + message
        answer = _Answer(stream, self._initial_window)
        gathered, self._gathered = self._gathered, b""
        head = gathered + frames.encode_frame(frames.HEADERS, frames.END_HEADERS, stream, self._encode(method))
        while len(body) > frames.DEFAULT_MAX_FRAME_BYTES:
            part, body = body[: frames.DEFAULT_MAX_FRAME_BYTES], body[frames.DEFAULT_MAX_FRAME_BYTES :]
            self._line.sendall(head + self._encode_data(answer, part, 0))
            head = b""
        self._line.sendall(head + self._encode_data(answer, body, frames.END_STREAM))
        while not answer.ended:
            self._read(answer)
        if answer.body and not self._ping_is_out:
            self._ping_is_out = True
            self._gathered = frames.encode_window_update(0, len(answer.body)) + _BANDWIDTH_PING
        if answer.fields.get(b"grpc-status") != b"0":
            raise CallFailed(f"{method}: {answer.fields}")
        return bytes(answer.body[5:])

    def _encode(self, method: str) -> bytes:
        """The header block; nothing but references from the second call of a method on."""
        block = self._blocks.get(method)
        if block is None:
            block = self._encoder.encode(
                [
                    (":method", "POST"),
                    (":scheme", "http"),
                    (":path", method),
                    (":authority", "localhost"),
                    ("content-type", "application/grpc"),
                    ("user-agent", USER_AGENT),
                    ("te", "trailers"),
                ]
            )
            if block.translate(None, _REFERENCES):
                self._blocks.clear()  # what was remembered last moves what was remembered before
            else:
                self._blocks[method] = block
        return block

    def _encode_data(self, answer: _Answer, part: bytes, flags: int) -> bytes:
        """A frame, once the server's windows have room for it."""
        while min(self._window, answer.window) < len(part):
            self._read(answer)
        self._window -= len(part)
        answer.window -= len(part)
        return frames.encode_frame(frames.DATA, flags, answer.stream, part)

    def _read(self, answer: _Answer | None) -> None:
        received = self._line.recv(_READ_BYTES)
        if not received:
            raise ConnectionResetError("the server hung up")
        data, position = self._unread + received, 0
        while len(data) - position >= frames.FRAME_HEADER_BYTES:
            size, kind, flags, stream = frames.parse_frame_header(data, position)
            end = position + frames.FRAME_HEADER_BYTES + size
            if len(data) < end:
                break
            payload = data[position + frames.FRAME_HEADER_BYTES : end]
            if answer is not None and stream == answer.stream:
                self._take_answer(kind, flags, payload, answer)
            else:
                self._take(kind, flags, payload)
            position = end
        self._unread = data[position:]

    def _take_answer(self, kind: int, flags: int, payload: bytes, answer: _Answer) -> None:
        if kind == frames.HEADERS:
            answer.fields.update(self._decode(payload))
        elif kind == frames.DATA:
            answer.body += payload
        elif kind == frames.WINDOW_UPDATE:
            answer.window += frames.parse_word(payload)
        answer.ended |= bool(flags & frames.END_STREAM)

    def _take(self, kind: int, flags: int, payload: bytes) -> None:
        if kind == frames.SETTINGS and not flags & frames.ACK:
            settings = dict(frames.parse_settings(payload))
            self._initial_window = settings.get(frames.SETTING_INITIAL_WINDOW_SIZE, self._initial_window)
            self._has_settings = True
            self._line.sendall(frames.encode_frame(frames.SETTINGS, frames.ACK, 0))
        elif kind == frames.WINDOW_UPDATE:
            self._window += frames.parse_word(payload)
        elif kind == frames.PING and flags & frames.ACK:
            self._ping_is_out = False
        elif kind == frames.GOAWAY:
            raise ConnectionResetError(f"the server said goodbye: {payload!r}")

    def _decode(self, block: bytes) -> dict[bytes, bytes]:
        """The fields; a block that changes no table means the same until one does."""
        known = self._known_fields.get(block)
        if known is None:
            table = self._decoder.header_table
            before = list(table.dynamic_entries)
            known = {bytes(name): bytes(value) for name, value in self._decoder.decode(block, raw=True)}
            if list(table.dynamic_entries) == before:
                self._known_fields[block] = known
            else:
                self._known_fields.clear()
        return known
