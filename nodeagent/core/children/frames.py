"""How a parent and its child process put messages on a pipe: length, request id, payload.

Both numbers are unsigned 32-bit, big-endian; the length counts the payload only. Request id 0 is for what the child
says unasked. Owns the codec for both sides. Refuses heavy imports, because the child pays for them at each start,
and frames past the agreed size, because a wrong header would otherwise make one side wait for gigabytes.
"""

import os
import struct
from collections.abc import Iterator

from nodeagent.core.errors import FrameCutShort, FrameTooLarge

MAX_PAYLOAD_BYTES = 4 * 1024 * 1024
"""Some tens of times the largest sample of a node with many GPU partitions."""

PARENT_VARIABLE = "NODEAGENT_PARENT_PID"
"""Environment variable in which the parent says who it is."""

UNASKED = 0
"""The request id of what was not requested."""

_HEADER = struct.Struct("!II")
_CHUNK_BYTES = 8 * 1024
"""The child's; most requests are smaller, and a large piece that is given back at once leaves holes in a small heap."""


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
        """Yield each frame (request id, payload) that is complete now that `data` came.

        Raises:
            FrameTooLarge: nothing after this can be trusted.
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
        """The stream has ended.

        Raises:
            FrameCutShort: it ended inside a frame.
        """
        if not self._buffer:
            return
        missing = _HEADER.size - len(self._buffer)
        if missing <= 0:
            missing = _HEADER.size + _HEADER.unpack_from(self._buffer)[0] - len(self._buffer)
        raise FrameCutShort(missing)


def read_frames(descriptor: int, *, limit_bytes: int = MAX_PAYLOAD_BYTES) -> Iterator[tuple[int, bytes]]:
    """The child's side: every frame from a blocking descriptor until it ends."""
    decoder = FrameDecoder(limit_bytes=limit_bytes)
    while data := os.read(descriptor, _CHUNK_BYTES):
        yield from decoder.feed(data)
    decoder.end()


def write_frame(descriptor: int, request: int, payload: bytes, *, limit_bytes: int = MAX_PAYLOAD_BYTES) -> None:
    """The child's side: one frame to a blocking descriptor, whole."""
    rest = memoryview(encode_frame(request, payload, limit_bytes=limit_bytes))
    while rest:
        rest = rest[os.write(descriptor, rest) :]
