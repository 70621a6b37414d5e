"""Blocking file work that may hang, in a thread of its own, with a deadline for each call.

Owns the threads: one that works, and those that are stuck. A call past its deadline raises `WorkerStuck` at once; its
thread is remembered, gets nothing more, and ends when the call returns, if it ever does; a fresh one takes its place.
Refuses to start more threads once as many as allowed are stuck, and any thread that would keep the process from ending.
"""

import asyncio
import threading
from collections.abc import Callable
from contextlib import suppress
from queue import SimpleQueue
from typing import Any, TypeVar

import anyio

from nodeagent.kernel.errors import WorkersExhausted, WorkerStuck
from nodeagent.kernel.log import get_logger

T = TypeVar("T")

_STUCK_LIMIT = 4


class WorkerThread:
    """Runs one call after the other in a thread; belongs to the event loop's thread."""

    def __init__(self, name: str, *, stuck_limit: int = _STUCK_LIMIT) -> None:
        self.name = name
        self._stuck_limit = stuck_limit
        self._turn = anyio.Lock()
        self._thread: _Thread | None = None
        self._stuck: list[_Thread] = []
        self._log = get_logger(component=name)

    async def run(self, call: Callable[[], T], *, timeout_seconds: float, what: str) -> T:
        """What `call` returns or raises; `what` says in words what it does, for errors and logs.

        The time counts from this call's turn. When the caller is cancelled meanwhile, the call goes on in its thread,
        which is treated as stuck until it returns.

        Raises:
            WorkerStuck: the call is past its deadline.
            WorkersExhausted: too many threads are stuck; the call was not tried.
        """
        async with self._turn:
            thread = self._free_thread(what)
            result: asyncio.Future[T] = asyncio.get_running_loop().create_future()
            thread.give(call, result, what)
            try:
                with anyio.move_on_after(timeout_seconds):
                    return await result
                raise WorkerStuck(self.name, what, timeout_seconds)
            finally:
                if not thread.is_idle:
                    self._set_aside(thread)

    def stuck(self) -> tuple[str, ...]:
        """What the stuck threads are stuck in."""
        self._stuck = [thread for thread in self._stuck if thread.is_alive()]
        return tuple(thread.what for thread in self._stuck)

    def close(self) -> None:
        """Let the working thread end; stuck ones end by themselves or with the process."""
        if self._thread is not None:
            self._thread.dismiss()
            self._thread = None

    def _free_thread(self, what: str) -> "_Thread":
        if self._thread is None:
            if len(self.stuck()) >= self._stuck_limit:
                raise WorkersExhausted(self.name, what, self.stuck())
            self._thread = _Thread(self.name)
            self._thread.start()
        return self._thread

    def _set_aside(self, thread: "_Thread") -> None:
        thread.dismiss()
        self._thread = None
        self._stuck.append(thread)
        self._log.warning("worker_thread_set_aside", call=thread.what, stuck=len(self._stuck))


class _Thread(threading.Thread):
    """Makes one call after the other until dismissed; a daemon, so that a stuck one lets the process end."""

    def __init__(self, name: str) -> None:
        super().__init__(name=name, daemon=True)
        self._calls: SimpleQueue[tuple[Callable[[], Any], asyncio.Future[Any]] | None] = SimpleQueue()
        self.what = ""
        self.is_idle = True
        """Read by the loop's thread; true before a result is handed over."""

    def give(self, call: Callable[[], Any], result: asyncio.Future[Any], what: str) -> None:
        """Make this call next."""
        self.is_idle = False
        self.what = what
        self._calls.put((call, result))

    def dismiss(self) -> None:
        """End after the present call."""
        self._calls.put(None)

    def run(self) -> None:
        """The thread's own life."""
        while (item := self._calls.get()) is not None:
            call, result = item
            settle = _outcome(call, result)
            self.is_idle = True
            _hand_over(result, settle)


def _outcome(call: Callable[[], Any], result: asyncio.Future[Any]) -> Callable[[], None]:
    try:
        value = call()
    except BaseException as raised:  # noqa: BLE001  # whatever it is belongs to the caller, not to this thread
        error = raised
        return lambda: result.set_exception(error)
    return lambda: result.set_result(value)


def _hand_over(result: asyncio.Future[Any], settle: Callable[[], None]) -> None:
    def settle_if_awaited() -> None:
        if not result.done():
            settle()

    with suppress(RuntimeError):  # the loop was closed while the call hung, so nobody waits for this
        result.get_loop().call_soon_threadsafe(settle_if_awaited)
