"""The format of messages between a parent and a child process: length, request id, payload.

Both numbers are unsigned 32-bit, big-endian; the length counts the payload only. Request id 0 is for unasked frames of
the child. Owns the codec for both sides. Refuses heavy imports, paid by the child at each start, and frames past the
agreed size, because a wrong header would otherwise make the reader wait for gigabytes.
"""

import os
import struct
from collections.abc import Iterator

from nodeagent.core.errors import FrameCutShort, FrameTooLarge

MAX_PAYLOAD_BYTES = 4 * 1024 * 1024
"""Some tens of times the largest sample of a node with many GPU partitions."""

PARENT_VARIABLE = "NODEAGENT_PARENT_PID"
"""Environment variable with the pid of the parent."""

UNASKED = 0
"""The request id of an unasked frame."""

_HEADER = struct.Struct("!II")
_CHUNK_BYTES = 8 * 1024
"""The child's read size; most requests are smaller, and a large freed buffer leaves holes in a small heap."""


def encode_frame(request: int, payload: bytes, *, limit_bytes: int = MAX_PAYLOAD_BYTES) -> bytes:
    """One frame, ready to be written whole."""
    if len(payload) > limit_bytes:
        raise FrameTooLarge(len(payload), limit_bytes)
    return _HEADER.pack(len(payload), request) + payload


class FrameDecoder:
    """Puts frames together from pieces of any size."""

    def __init__(self, *, limit_bytes: int = MAX_PAYLOAD_BYTES) -> None:
        self._buffer = bytearray()
        self._limit_bytes = limit_bytes

    def feed(self, data: bytes) -> Iterator[tuple[int, bytes]]:
        """Yield each frame (request id, payload) completed by `data`.

        Raises:
            FrameTooLarge: A frame is over the limit; the rest of the stream is useless.
        """
        self._buffer += data
        while len(self._buffer) >= _HEADER.size:
            size, request = _HEADER.unpack_from(self._buffer)
            if size > self._limit_bytes:
                raise FrameTooLarge(size, self._limit_bytes)
            end = _HEADER.size + size
            if len(self._buffer) < end:
                return
            payload = bytes(self._buffer[_HEADER.size : end])
            del self._buffer[:end]
            yield request, payload

    def end(self) -> None:
        """Note the end of the stream.

        Raises:
            FrameCutShort: The stream ended inside a frame.
        """
        if not self._buffer:
            return
        missing = _HEADER.size - len(self._buffer)
        if missing <= 0:
            missing = _HEADER.size + _HEADER.unpack_from(self._buffer)[0] - len(self._buffer)
        raise FrameCutShort(missing)


def read_frames(descriptor: int) -> Iterator[tuple[int, bytes]]:
    """The child's side: all frames from a blocking descriptor until the end of the stream."""
    decoder = FrameDecoder()
    while data := os.read(descriptor, _CHUNK_BYTES):
        yield from decoder.feed(data)
    decoder.end()


def write_frame(descriptor: int, request: int, payload: bytes, *, limit_bytes: int = MAX_PAYLOAD_BYTES) -> None:
    """The child's side: one frame to a blocking descriptor, whole."""
    rest = memoryview(encode_frame(request, payload, limit_bytes=limit_bytes))
    while rest:
        rest = rest[os.write(descriptor, rest) :]
