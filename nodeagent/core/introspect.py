"""The process seen from inside: lag of the loop, tasks, threads, memory, descriptors.

Owns the loop lag sampler. Refuses to judge; limits are decided elsewhere.
"""

import asyncio
import os
import threading
from collections import deque
from collections.abc import Sequence
from pathlib import Path

import anyio
from anyio.abc import TaskStatus
from msgspec import Struct

from nodeagent.core.values import LoopLag

_SAMPLE_PERIOD_SECONDS = 0.25
_STATM = Path("/proc/self/statm")
_PAGE_BYTES = os.sysconf("SC_PAGE_SIZE")
_WINDOW_SAMPLES = 240
"""One minute of samples."""


class ProcessSnapshot(Struct, frozen=True):
    """The process at one moment."""

    lag: LoopLag
    tasks: tuple[str, ...]
    threads: tuple[str, ...]
    descriptors: int
    memory_bytes: int
    """Resident set size."""


class Introspection:
    """Samples the loop's lag and takes snapshots of the process."""

    name = "introspection"

    def __init__(
        self, *, period_seconds: float = _SAMPLE_PERIOD_SECONDS, window_samples: int = _WINDOW_SAMPLES
    ) -> None:
        self._period_seconds = period_seconds
        self._lags: deque[float] = deque(maxlen=window_samples)
        self._timer: asyncio.TimerHandle | None = None

    async def run(self, *, task_status: TaskStatus[None] = anyio.TASK_STATUS_IGNORED) -> None:
        """Sample until cancelled."""
        self._plan_look(asyncio.get_running_loop())
        task_status.started()
        try:
            await anyio.sleep_forever()
        finally:
            assert self._timer is not None
            self._timer.cancel()

    def _plan_look(self, loop: asyncio.AbstractEventLoop) -> None:
        """Set a bare timer: waking a task for each sample would be a tenth of the cost of an idle agent."""
        now = loop.time()
        due = now - now % self._period_seconds + self._period_seconds  # as `until_beat`, which asks anyio for the time
        self._timer = loop.call_at(due, self._look, loop, due)

    def _look(self, loop: asyncio.AbstractEventLoop, due: float) -> None:
        self._lags.append(max(0.0, loop.time() - due))
        self._plan_look(loop)

    def lag(self) -> LoopLag:
        """The loop's lag over the window."""
        return summarise_lag(self._lags)

    def snapshot(self) -> ProcessSnapshot:
        """The process now; for the event loop's thread."""
        return ProcessSnapshot(
            lag=self.lag(),
            tasks=tuple(sorted(task.get_name() for task in asyncio.all_tasks())),
            threads=tuple(sorted(thread.name for thread in threading.enumerate())),
            descriptors=count_descriptors(),
            memory_bytes=read_resident_bytes(),
        )


def count_descriptors() -> int:
    """Number of open files, sockets and pipes of the process."""
    return len(os.listdir("/proc/self/fd")) - 1  # noqa: PTH208  # the listing's own descriptor is not counted


def read_resident_bytes() -> int:
    """The resident set size of the process."""
    return parse_resident_bytes(_STATM.read_text(), _PAGE_BYTES)


def summarise_lag(lags: Sequence[float] | deque[float]) -> LoopLag:
    """Percentiles by nearest rank; all zero without samples."""
    if not lags:
        return LoopLag(0.0, 0.0, 0.0, 0)
    ordered = sorted(lags)
    last = len(ordered) - 1
    return LoopLag(ordered[round(last * 0.50)], ordered[round(last * 0.99)], ordered[-1], len(ordered))


def parse_resident_bytes(statm: str, page_bytes: int) -> int:
    """The resident set size by the second field of /proc/self/statm, in pages."""
    return int(statm.split()[1]) * page_bytes
