"""Fails a test that leaves a thread, a descriptor or a task behind.

Threads and descriptors are compared after the test's loop is closed; those that are just ending get a moment.
Tasks are compared inside the loop, at the end of the test's own coroutine.
"""

import asyncio
import gc
import threading
import time
from collections.abc import Awaitable, Callable
from functools import wraps
from pathlib import Path
from typing import Any, Final, Self

_PATIENCE_SECONDS: Final = 2.0
_LAST_PASSES: Final = 5
"""Turns of the loop that a task gets to finish in, once the test is over."""


class LeakError(AssertionError):
    """A test left something behind."""


class Leaks:
    """What there was at a moment, to be compared with what there is later."""

    def __init__(self, threads: set[threading.Thread], descriptors: dict[int, str]) -> None:
        self._threads, self._descriptors = threads, descriptors

    @classmethod
    def since_now(cls) -> Self:
        """Remember what there is now."""
        return cls(set(threading.enumerate()), _descriptors())

    def check(self) -> None:
        """Raise LeakError when something is there that was not, and stays."""
        deadline = time.monotonic() + _PATIENCE_SECONDS
        while left := self._left():
            gc.collect()
            if time.monotonic() > deadline:
                raise LeakError(f"left behind by the test: {', '.join(left)}")
            time.sleep(0.01)

    def _left(self) -> list[str]:
        threads = [f"thread {thread.name!r}" for thread in threading.enumerate() if thread not in self._threads]
        descriptors = [
            f"descriptor {number} of {target}"
            for number, target in _descriptors().items()
            if self._descriptors.get(number) != target
        ]
        return threads + descriptors


def forbid_leaked_tasks(test: Callable[..., Awaitable[None]]) -> Callable[..., Awaitable[None]]:
    """The same test, failing when it leaves tasks in its loop."""

    @wraps(test)
    async def checked(*args: Any, **kwargs: Any) -> None:
        before = asyncio.all_tasks()
        await test(*args, **kwargs)
        for _ in range(_LAST_PASSES):
            if asyncio.all_tasks() <= before:
                return
            await asyncio.sleep(0)
        left = ", ".join(sorted(task.get_name() for task in asyncio.all_tasks() - before))
        raise LeakError(f"left behind by the test: tasks {left}")

    return checked


def _descriptors() -> dict[int, str]:
    found: dict[int, str] = {}
    for link in Path("/proc/self/fd").iterdir():
        try:
            found[int(link.name)] = str(link.readlink())
        except FileNotFoundError:
            continue  # the descriptor of the listing itself
    return found
