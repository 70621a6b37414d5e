"""One master per cluster: whoever starts, stops or tests on it holds its lock until the end, however that comes.

The kernel releases the lock of a killed process, so that a crash never needs cleaning up by hand.
"""

import fcntl
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TextIO

from tests.integration.cluster.errors import ClusterBusy
from tests.integration.cluster.layout import Layout


@contextmanager
def hold(layout: Layout) -> Iterator[None]:
    """Hold the cluster for the length of a `with` block; the lock's file is gone afterwards.

    Raises:
        ClusterBusy: another process holds it.
    """
    with _open_locked(layout) as lock:
        lock.truncate(0)
        lock.write(f"process {os.getpid()}")
        lock.flush()
        try:
            yield
        finally:
            layout.lock_file.unlink(missing_ok=True)


def _open_locked(layout: Layout) -> TextIO:
    while True:
        lock = layout.lock_file.open("a+")
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError as error:
            lock.seek(0)
            holder = lock.read().strip() or "another process"
            lock.close()
            raise ClusterBusy(layout.root, holder) from error
        if is_same_file(lock, layout.lock_file):
            return lock
        lock.close()  # the holder before us removed this file between our open and our lock


def is_same_file(opened: TextIO, path: Path) -> bool:
    """Whether `path` still leads to the file that was opened."""
    try:
        return os.path.samestat(os.fstat(opened.fileno()), path.stat())
    except FileNotFoundError:
        return False
