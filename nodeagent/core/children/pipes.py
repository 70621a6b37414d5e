"""Pipes to a child process, read and written without blocking the loop.

Owns nothing: descriptors belong to the caller, and are closed after the end of all tasks on a descriptor.
Refuses blocking descriptors (set non-blocking first).
"""

import os
from collections.abc import Callable

import anyio

_CHUNK_BYTES = 64 * 1024
_LINE_LIMIT_BYTES = 4096


async def read_some(descriptor: int) -> bytes:
    """The next available bytes; empty at the end of the stream."""
    while True:
        # waiting first, even with bytes available: a stream without pauses must not keep the loop to itself
        await anyio.wait_readable(descriptor)
        try:
            return os.read(descriptor, _CHUNK_BYTES)
        except BlockingIOError:
            continue  # the readiness was for a moment only


async def write_whole(descriptor: int, data: bytes) -> None:
    """Write all bytes, waiting for room as often as needed."""
    rest = memoryview(data)
    while rest:
        await anyio.wait_writable(descriptor)
        try:
            rest = rest[os.write(descriptor, rest) :]
        except BlockingIOError:
            continue  # the room was for a moment only


async def read_lines(descriptor: int, on_line: Callable[[str], None]) -> None:
    """Hand over each line of text until the stream ends; a line without end is cut at 4096 bytes."""
    rest = b""
    while data := await read_some(descriptor):
        *lines, rest = (rest + data).split(b"\n")
        if len(rest) > _LINE_LIMIT_BYTES:
            lines.append(rest)
            rest = b""
        for line in lines:
            _hand_over(line, on_line)
    _hand_over(rest, on_line)


def _hand_over(line: bytes, on_line: Callable[[str], None]) -> None:
    if text := line[:_LINE_LIMIT_BYTES].decode(errors="replace").rstrip():
        on_line(text)
