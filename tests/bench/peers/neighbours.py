"""Processes beside a measurement that want its processors and its disk."""

import os
import subprocess
import tempfile
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Final

from tests.shake.crowd import SPIN, make_busy, running

BUSY_EACH: Final = 2
"""Of each processor."""
_SYNC: Final = """
import os, sys, time
parent, end, path = int(sys.argv[1]), time.monotonic() + float(sys.argv[2]), sys.argv[3]
while os.getppid() == parent and time.monotonic() < end:
    file = os.open(path, os.O_CREAT | os.O_WRONLY | os.O_TRUNC)
    os.write(file, bytes(65536))
    os.fsync(file)
    os.close(file)
"""
"""One file after the other, each whole on the disk before the next."""


@contextmanager
def neighbours() -> Iterator[None]:
    """Two busy processes for each processor, and one that syncs files where the nodes of a measurement lie."""
    with ExitStack() as stack:
        place = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="nb-")))
        commands = [make_busy(SPIN)] * (BUSY_EACH * (os.cpu_count() or 1))
        for command in (*commands, make_busy(_SYNC, str(place / "file"))):
            stack.enter_context(running(command, place, os.environ, subprocess.DEVNULL))
        yield
