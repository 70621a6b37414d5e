"""Fails a test that leaves a thread, a descriptor, a child process or a task behind.

Threads, descriptors and child processes are compared after the test's loop is closed; those that are just
ending get a moment.
Tasks are compared inside the loop, at the end of the test's own coroutine.
"""

import asyncio
import gc
import threading
import time
from collections.abc import Awaitable, Callable
from contextlib import suppress
from functools import wraps
from pathlib import Path
from typing import Any, Final

_PATIENCE_SECONDS: Final = 2.0
_LAST_PASSES: Final = 5
"""Turns of the loop that a task gets to finish in, once the test is over."""


class LeakError(AssertionError):
    """A test left something behind."""


class Leaks:
    """What there was at a moment, to be compared with what there is later."""

    def __init__(self, *, patience_seconds: float = _PATIENCE_SECONDS) -> None:
        self._patience_seconds = patience_seconds
        self._threads = set(threading.enumerate())
        self._descriptors = _descriptors()
        self._children = _children()

    def check(self) -> None:
        """Raise LeakError when something is there that was not, and stays."""
        deadline = time.monotonic() + self._patience_seconds
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
        # a forgotten child would make every later test on virtual time run at real speed
        children = [f"child process {pid}" for pid in _children() - self._children]
        return threads + descriptors + children


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


def _children() -> set[str]:
    """Child processes of any thread, zombies included."""
    found: set[str] = set()
    for thread in Path("/proc/self/task").iterdir():
        with suppress(FileNotFoundError):  # the thread has just ended
            found.update((thread / "children").read_text().split())
    return found
