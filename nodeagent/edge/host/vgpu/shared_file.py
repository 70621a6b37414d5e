"""The file that the containers of one claim share: made here, written and locked by the vGPU library in each of them.

Refuses to read it: what each process has stands in locks, which end with it. The library bounds what is written there.
"""

import os
from pathlib import Path
from typing import Final

from nodeagent.edge.host.errors import FileNotWritten, FileUnreadable
from nodeagent.edge.host.files.atomic_file import write_atomically
from nodeagent.edge.host.vgpu.layout import SHARED

_MODE: Final = 0o666
"""Whoever the processes of the containers run as."""


def create_shared(path: Path) -> None:
    """Put a new file in place, before any container has it; after a power cut it is made anew.

    Raises:
        FileNotWritten: it could not be written.
    """
    write_atomically(path, bytes(SHARED.size), mode=_MODE, durable=False)


def bound_shared(path: Path) -> int | None:
    """Take away what a container has added to the file; what size that was, 0 for none, nothing without a file.

    Raises:
        FileUnreadable: it cannot be opened.
        FileNotWritten: it cannot be cut.
    """
    try:
        descriptor = os.open(path, os.O_RDWR | os.O_CLOEXEC | os.O_NOFOLLOW | os.O_NONBLOCK)
    except FileNotFoundError:
        return None
    except OSError as error:
        raise FileUnreadable(path, error) from error
    try:
        return cut(path, descriptor, SHARED.size)
    finally:
        os.close(descriptor)


def cut(path: Path, descriptor: int, most_bytes: int) -> int:
    """Have a file be no longer than that; what size a longer one had.

    Raises:
        FileNotWritten: it cannot be cut.
    """
    size = os.fstat(descriptor).st_size
    if size <= most_bytes:
        return 0
    try:
        os.ftruncate(descriptor, most_bytes)
    except OSError as error:
        raise FileNotWritten(path, "cut it", error, replaced=False) from error
    return size
