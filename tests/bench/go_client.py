"""A caller that speaks as the kubelet's gRPC for Go does and costs little, so that what is timed is the plugin.

Frames as grpc-go sends them: header fields that HPACK remembers, HEADERS and DATA in one write, and after an answer the
window update and the PING by which it measures the line. Blocking, one call at a time, as the kubelet admits pods.
"""

import socket
from pathlib import Path
from typing import Final

from hpack import Decoder, Encoder

from nodeagent.edge.kubelet.wire import frames

USER_AGENT: Final = "grpc-go/1.79.1"
PATIENCE_SECONDS: Final = 30.0
_REFERENCES: Final = bytes(range(0x81, 0xFF))
_BANDWIDTH_PING: Final = frames.encode_frame(frames.PING, 0, 0, bytes((2, 4, 16, 16, 9, 14, 7, 7)))
_READ_BYTES: Final = 262_144


class CallFailed(Exception):
    """The server's answer was an error."""


class _Answer:
    """What has come of one call."""

    def __init__(self) -> None:
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

    def close(self) -> None:
        """Hang up."""
        self._line.close()

    def call(self, method: str, message: bytes) -> bytes:
        """The answer to one unary call.

        Raises:
            CallFailed: it is an error.
        """
        stream, self._next_stream = self._next_stream, self._next_stream + 2
        body = b"\0" + len(message).to_bytes(4, "big") + message
        self._line.sendall(
            frames.encode_frame(frames.HEADERS, frames.END_HEADERS, stream, self._encode(method))
            + frames.encode_frame(frames.DATA, frames.END_STREAM, stream, body)
        )
        answer = _Answer()
        while not answer.ended:
            self._read(stream, answer)
        if answer.body and not self._ping_is_out:
            self._ping_is_out = True
            self._line.sendall(frames.encode_window_update(0, len(answer.body)) + _BANDWIDTH_PING)
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

    def _read(self, stream: int, answer: _Answer) -> None:
        received = self._line.recv(_READ_BYTES)
        if not received:
            raise ConnectionResetError("the server hung up")
        data, position = self._unread + received, 0
        while len(data) - position >= frames.FRAME_HEADER_BYTES:
            size, kind, flags, at = frames.parse_frame_header(data, position)
            end = position + frames.FRAME_HEADER_BYTES + size
            if len(data) < end:
                break
            self._take(kind, flags, data[position + frames.FRAME_HEADER_BYTES : end], answer if at == stream else None)
            position = end
        self._unread = data[position:]

    def _take(self, kind: int, flags: int, payload: bytes, answer: _Answer | None) -> None:
        if kind == frames.SETTINGS and not flags & frames.ACK:
            self._line.sendall(frames.encode_frame(frames.SETTINGS, frames.ACK, 0))
        elif kind == frames.PING and flags & frames.ACK:
            self._ping_is_out = False
        elif kind == frames.GOAWAY:
            raise ConnectionResetError(f"the server said goodbye: {payload!r}")
        elif kind == frames.HEADERS:
            fields = self._decode(payload)
            if answer is not None:
                answer.fields.update(fields)
        elif kind == frames.DATA and answer is not None:
            answer.body += payload
        if answer is not None and flags & frames.END_STREAM and kind in {frames.HEADERS, frames.DATA}:
            answer.ended = True

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
