"""Reads ld.so.cache, the loader's own list of shared libraries, from the host or from a driver container's root.

Owns both formats that glibc has written (the old one, the new one, and the file that carries both), in either byte
order.
Refuses to trust the file: an entry that points outside the file is left out, a file of another format is an error.
"""

import struct
from collections.abc import Iterator
from functools import lru_cache
from pathlib import Path
from typing import Literal, NamedTuple

from nodeagent.edge.host.errors import HostError, LibraryCacheInvalid
from nodeagent.edge.host.files.atomic_file import identify, read_bounded

_OLD_MAGIC = b"ld.so-1.7.0\0"
_OLD_ENTRY = 12
_NEW_MAGIC = b"glibc-ld.so.cache1.1"
_NEW_HEADER = 48
_NEW_ENTRY = 24
_BYTE_ORDER_AT = 28
_BIG_ENDIAN = 3
_NAME_LIMIT_BYTES = 4096
_ELF_FLAG = 0x0001


class CachedLibrary(NamedTuple):
    """One entry: a library's name, and its path."""

    name: str
    path: str


class _Format(NamedTuple):
    """The layout of one block of entries."""

    order: Literal["<", ">"]
    entries_at: int
    entry_size: int
    entry_count: int
    strings_at: int
    """Base of the offsets of names and paths."""


def find_cached(path: str, name: str) -> tuple[str, ...]:
    """Paths of a library by the cache in a file, the loader's first choice first.

    A missing or damaged cache has no libraries; the loader would say the same.
    """
    try:
        libraries = _read_cache(path, identify(path))
    except HostError:
        return ()
    return tuple(library.path for library in libraries if library.name == name)


@lru_cache(maxsize=2)
def _read_cache(path: str, _identity: tuple[int, ...]) -> tuple[CachedLibrary, ...]:
    """The entries, remembered while the file is unchanged: thousands of entries are asked for again and again."""
    return parse_library_cache(read_bounded(Path(path)))


def parse_library_cache(content: bytes) -> tuple[CachedLibrary, ...]:
    """All entries, in the loader's order of preference.

    Raises:
        LibraryCacheInvalid: The content is no ld.so.cache, or ends in the middle.
    """
    if content.startswith(_NEW_MAGIC):
        return _parse_new(content)
    if not content.startswith(_OLD_MAGIC):
        raise LibraryCacheInvalid("the file does not begin like one")
    old = _read_old_format(content)
    new_at = _align(old.strings_at)
    if content.startswith(_NEW_MAGIC, new_at):
        return _parse_new(content[new_at:])
    return tuple(_iterate_entries(content, old))


def _parse_new(content: bytes) -> tuple[CachedLibrary, ...]:
    if len(content) < _NEW_HEADER:
        raise LibraryCacheInvalid("it ends within its header")
    order: Literal["<", ">"] = ">" if content[_BYTE_ORDER_AT] & 3 == _BIG_ENDIAN else "<"
    (count,) = struct.unpack_from(f"{order}I", content, len(_NEW_MAGIC))
    layout = _Format(order, _NEW_HEADER, _NEW_ENTRY, count, 0)
    _require_entries(content, layout)
    return tuple(_iterate_entries(content, layout))


def _read_old_format(content: bytes) -> _Format:
    if len(content) < len(_OLD_MAGIC) + 4:
        raise LibraryCacheInvalid("it ends within its header")
    (count,) = struct.unpack_from("<I", content, len(_OLD_MAGIC))
    entries_at = len(_OLD_MAGIC) + 4
    layout = _Format("<", entries_at, _OLD_ENTRY, count, entries_at + count * _OLD_ENTRY)
    _require_entries(content, layout)
    return layout


def _require_entries(content: bytes, layout: _Format) -> None:
    needed = layout.entries_at + layout.entry_count * layout.entry_size
    if needed > len(content):
        raise LibraryCacheInvalid(f"it announces {layout.entry_count} entries and ends before the last one")


def _iterate_entries(content: bytes, layout: _Format) -> Iterator[CachedLibrary]:
    for number in range(layout.entry_count):
        at = layout.entries_at + number * layout.entry_size
        flags, name_at, path_at = struct.unpack_from(f"{layout.order}iII", content, at)
        name = _read_string(content, layout.strings_at + name_at)
        path = _read_string(content, layout.strings_at + path_at)
        if flags & _ELF_FLAG and name and path:
            yield CachedLibrary(name, path)


def _read_string(content: bytes, at: int) -> str:
    end = content.find(b"\0", at, at + _NAME_LIMIT_BYTES) if at < len(content) else -1
    return content[at:end].decode("utf-8", "surrogateescape") if end > at else ""


def _align(offset: int) -> int:
    return (offset + 7) & ~7
