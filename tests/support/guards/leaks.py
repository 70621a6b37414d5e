"""Fails a test that leaves a thread, a descriptor, a child process or a task behind.

Threads, descriptors and child processes are compared after the test's loop is closed; those that are just
ending get a moment. A child process that stays is killed and reaped: it has failed its own test and no other.
Tasks are compared inside the loop, at the end of the test's own coroutine.
"""

import asyncio
import gc
import os
import signal
import threading
import time
from collections.abc import Awaitable, Callable
from contextlib import suppress
from functools import wraps
from pathlib import Path
from typing import Any, Final

_PATIENCE_SECONDS: Final = 8.0
"""What is ending gets as long as a busy machine may need; nothing waits that leaves nothing behind."""
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
        self._children = read_children()

    def check(self) -> None:
        """Raise LeakError when something is there that was not, and stays."""
        deadline = time.monotonic() + self._patience_seconds
        while left := self._left():
            gc.collect()
            if time.monotonic() > deadline:
                _end(read_children() - self._children)
                raise LeakError(f"left behind by the test: {', '.join(left)}")
            time.sleep(0.01)

    def _left(self) -> list[str]:
        threads = [f"thread {thread.name!r}" for thread in threading.enumerate() if thread not in self._threads]
        descriptors = [
            f"descriptor {number} of {target}"
            for number, target in _descriptors().items()
            if self._descriptors.get(number) != target
        ]
        children = [f"child process {pid}" for pid in sorted(read_children() - self._children)]
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


def read_children() -> set[int]:
    """Child processes of any thread, zombies included."""
    found: set[int] = set()
    for thread in Path("/proc/self/task").iterdir():
        with suppress(FileNotFoundError):  # the thread has just ended
            found.update(map(int, (thread / "children").read_text().split()))
    return found


def _end(children: set[int]) -> None:
    """Kill and reap; a frozen one dies when it is thawed, and is no longer waited for then."""
    for pid in children:
        with suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)
    deadline = time.monotonic() + _PATIENCE_SECONDS
    while children and time.monotonic() < deadline:
        children = {pid for pid in children if not _is_reaped(pid)}
        time.sleep(0.01)


def _is_reaped(pid: int) -> bool:
    try:
        return os.waitpid(pid, os.WNOHANG)[0] == pid
    except ChildProcessError:
        return True  # somebody else has
