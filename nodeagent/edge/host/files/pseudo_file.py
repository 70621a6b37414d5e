"""Reads single attributes from /proc and /sys, where "not there" is an ordinary answer.

Owns the one place that turns an unreadable attribute into an empty text: evidence is gathered from visible files.
Refuses files that matter for their own sake; those go through `atomic_file.read_bounded`, with the reason of a failure.
"""

import os
from pathlib import Path

ATTRIBUTE_LIMIT_BYTES = 64 * 1024


def read_attribute(path: Path | str, *, limit_bytes: int = ATTRIBUTE_LIMIT_BYTES) -> str:
    """The text of a kernel attribute without surrounding white space; empty for an unreadable attribute."""
    return read_raw_attribute(path, limit_bytes=limit_bytes).decode("utf-8", "replace").strip()


def read_raw_attribute(path: Path | str, *, limit_bytes: int = ATTRIBUTE_LIMIT_BYTES) -> bytes:
    """The first bytes of a kernel attribute; empty for an unreadable attribute."""
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK)
    except OSError:
        return b""
    chunks: list[bytes] = []
    try:
        # The kernel hands most files of /proc out by the page, whatever the size of the buffer.
        while limit_bytes > 0 and (chunk := os.read(descriptor, limit_bytes)):
            chunks.append(chunk)
            limit_bytes -= len(chunk)
    except OSError:
        return b""
    finally:
        os.close(descriptor)
    return b"".join(chunks)


def read_number(path: Path) -> int | None:
    """A decimal or 0x-prefixed attribute; `None` for an unreadable attribute, or one without a number."""
    try:
        return int(read_attribute(path), 0)
    except ValueError:
        return None


def read_link_name(path: Path) -> str:
    """The last part of a symbolic link's target; empty without a link."""
    try:
        return path.readlink().name
    except OSError:
        return ""


def list_names(directory: Path | str) -> tuple[str, ...]:
    """The names in a directory, sorted; empty for an unreadable directory."""
    try:
        with os.scandir(directory) as entries:
            return tuple(sorted(entry.name for entry in entries))
    except OSError:
        return ()


def list_processes(proc_root: Path) -> tuple[Path, ...]:
    """The directories of all processes in a /proc, by pid; empty for an unreadable /proc."""
    pids = sorted(int(name) for name in list_names(proc_root) if name.isascii() and name.isdigit())
    return tuple(proc_root / str(pid) for pid in pids)
