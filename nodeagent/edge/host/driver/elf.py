"""Reads the SONAME of a shared library, the name that programs are linked against, without loading the library.

Owns the necessary piece of ELF: 64-bit files of either byte order.
Refuses to trust the file: every size is bounded, and an inconsistent file is no library at all.
"""

import os
import struct
from collections.abc import Callable
from pathlib import Path
from typing import Final, NamedTuple

_MAGIC: Final = b"\x7fELF"
_HEADER_BYTES: Final = 64
_SEGMENT_BYTES: Final = 56
_SEGMENTS_LIMIT: Final = 64
_ENTRY_BYTES: Final = 16
_DYNAMIC_LIMIT_BYTES: Final = 64 * 1024
_NAME_LIMIT_BYTES: Final = 256
_CLASS_64: Final = 2
_TYPE_SHARED: Final = 3
_LOAD, _DYNAMIC = 1, 2
_TAG_END, _TAG_STRINGS, _TAG_SONAME = 0, 5, 14

ReadAt = Callable[[int, int], bytes]
"""At most so many bytes (second) from an offset (first)."""


class LibraryIdentity(NamedTuple):
    """Processor family and SONAME of a shared library."""

    machine: int
    """The ELF number of the processor family: 62 for x86-64, 183 for aarch64."""
    soname: str
    """Empty for a library without a SONAME."""


class _Segment(NamedTuple):
    kind: int
    offset: int
    address: int
    size: int


def read_library_identity(path: Path) -> LibraryIdentity | None:
    """The identity of a library file; `None` unless the file is a 64-bit shared library.

    Raises:
        OSError: The file cannot be read, or has vanished.
    """
    descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK)
    try:
        return parse_library_identity(lambda offset, size: os.pread(descriptor, size, offset))
    finally:
        os.close(descriptor)


def parse_library_identity(read_at: ReadAt) -> LibraryIdentity | None:
    """The identity of a library; `None` unless the content is a sound 64-bit shared library."""
    header = read_at(0, _HEADER_BYTES)
    if len(header) < _HEADER_BYTES or not header.startswith(_MAGIC) or header[4] != _CLASS_64:
        return None
    order = {1: "<", 2: ">"}.get(header[5], "")
    if not order:
        return None
    kind, machine = struct.unpack_from(f"{order}HH", header, 16)
    if kind != _TYPE_SHARED:
        return None
    try:
        segments = _read_segments(read_at, header, order)
        return LibraryIdentity(machine, _read_soname(read_at, segments, order))
    except (struct.error, OverflowError, ValueError):
        # An offset beyond the end, or beyond what the kernel takes: a truncated or dishonest file.
        return None


def _read_segments(read_at: ReadAt, header: bytes, order: str) -> list[_Segment]:
    (table_at,) = struct.unpack_from(f"{order}Q", header, 32)
    entry_bytes, count = struct.unpack_from(f"{order}HH", header, 54)
    if entry_bytes != _SEGMENT_BYTES:
        return []
    count = min(count, _SEGMENTS_LIMIT)
    table = _read(read_at, table_at, count * _SEGMENT_BYTES)
    segments = []
    for number in range(count):
        kind, _flags, offset, address, _physical, size = struct.unpack_from(
            f"{order}IIQQQQ", table, number * _SEGMENT_BYTES
        )
        segments.append(_Segment(kind, offset, address, size))
    return segments


def _read_soname(read_at: ReadAt, segments: list[_Segment], order: str) -> str:
    dynamic = next((segment for segment in segments if segment.kind == _DYNAMIC), None)
    if dynamic is None:
        return ""
    content = _read(read_at, dynamic.offset, min(dynamic.size, _DYNAMIC_LIMIT_BYTES))
    tags: dict[int, int] = {}
    for at in range(0, len(content) - _ENTRY_BYTES + 1, _ENTRY_BYTES):
        tag, value = struct.unpack_from(f"{order}QQ", content, at)
        if tag == _TAG_END:
            break
        tags.setdefault(tag, value)
    if _TAG_SONAME not in tags or _TAG_STRINGS not in tags:
        return ""
    return _read_name(read_at, _find_offset(tags[_TAG_STRINGS], segments) + tags[_TAG_SONAME])


def _find_offset(address: int, segments: list[_Segment]) -> int:
    """The file offset of a memory address."""
    for segment in segments:
        if segment.kind == _LOAD and segment.address <= address < segment.address + segment.size:
            return address - segment.address + segment.offset
    return address


def _read_name(read_at: ReadAt, offset: int) -> str:
    text, end, _ = _read(read_at, offset, _NAME_LIMIT_BYTES).partition(b"\0")
    # A name without an end, or with a slash that could leave the directory, does not count.
    return text.decode("ascii") if end and b"/" not in text else ""


def _read(read_at: ReadAt, offset: int, size: int) -> bytes:
    """The bytes at an offset; a `ValueError` for offsets beyond any file."""
    try:
        return read_at(offset, size)
    except OSError as error:
        raise ValueError(str(error)) from error
