"""Threads of a worker, as tests need them to fail."""

from collections.abc import Callable
from typing import TypeVar

import anyio.lowlevel

from nodeagent.core.children.worker_thread import WorkerThread
from nodeagent.core.errors import ThreadStuck

T = TypeVar("T")


class StuckThread(WorkerThread):
    """A thread that never comes back."""

    async def run(
        self, call: Callable[[], T], *, timeout_seconds: float, what: str, patience_seconds: float = 0.0
    ) -> T:
        await anyio.lowlevel.checkpoint()
        raise ThreadStuck(self.name, what, timeout_seconds)
