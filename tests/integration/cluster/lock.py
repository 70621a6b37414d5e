"""One master per cluster: whoever starts, stops or tests on it holds its lock until the end, however that comes.

The kernel releases the lock of a killed process, so that a crash never needs cleaning up by hand.
"""

import fcntl
import os
from collections.abc import Iterator
from contextlib import contextmanager

from tests.integration.cluster.errors import ClusterBusy
from tests.integration.cluster.layout import Layout


@contextmanager
def hold(layout: Layout) -> Iterator[None]:
    """Hold the cluster for the length of a `with` block.

    Raises:
        ClusterBusy: another process holds it.
    """
    with layout.lock_file.open("a+") as lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError as error:
            lock.seek(0)
            raise ClusterBusy(layout.root, lock.read().strip() or "another process") from error
        lock.truncate(0)
        lock.write(f"process {os.getpid()}")
        lock.flush()
        yield
        lock.truncate(0)
