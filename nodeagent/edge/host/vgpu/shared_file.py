"""The shared file of a claim's containers: made here, written and locked by the vGPU library in each container.

Refuses to read the file: each process states its memory by locks, which end with the process. The library bounds all
values that it reads from the file.
"""

import os
from pathlib import Path
from typing import Final

from nodeagent.edge.host.errors import FileNotWritten, FileUnreadable
from nodeagent.edge.host.files.atomic_file import write_atomically
from nodeagent.edge.host.vgpu.layout import SHARED

_MODE: Final = 0o666
"""For every user of the containers' processes."""


def create_shared(path: Path) -> None:
    """Put a new file in place before any container starts; after a power cut the file is made anew."""
    write_atomically(path, bytes(SHARED.size), mode=_MODE, durable=False)


def bound_shared(path: Path) -> int | None:
    """Truncate a file that a container has enlarged; the enlarged size, 0 for no change, `None` without a file."""
    descriptor = open_written(path)
    if descriptor is None:
        return None
    try:
        return cut(path, descriptor, SHARED.size)
    finally:
        os.close(descriptor)


def open_written(path: Path) -> int | None:
    """Open a file that containers write, whatever a container has put in its place; `None` without a file."""
    try:
        return os.open(path, os.O_RDWR | os.O_CLOEXEC | os.O_NOFOLLOW | os.O_NONBLOCK)
    except FileNotFoundError:
        return None
    except OSError as error:
        raise FileUnreadable(path, error) from error


def cut(path: Path, descriptor: int, most_bytes: int) -> int:
    """Truncate a file to a size; the size of a longer file, or 0."""
    size = os.fstat(descriptor).st_size
    if size <= most_bytes:
        return 0
    try:
        os.ftruncate(descriptor, most_bytes)
    except OSError as error:
        raise FileNotWritten(path, "cut it", error, replaced=False) from error
    return size
