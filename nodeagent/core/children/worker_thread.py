"""Blocking file work that may hang, in a thread of its own, with a deadline for each call.

Owns the threads: the working thread, and stuck threads. A call past the deadline raises `ThreadStuck` at once; the
thread is remembered, gets no more calls, and ends when the call returns, if ever; a fresh thread takes over.
Refuses to start more threads at the limit of stuck threads, and any thread that would keep the process from ending.

A short call costs less than the loop's wake-up for the result: waking the loop, a turn of the loop, a turn of the task,
together about 0.15 ms for a call of 0.1 ms. A caller with patience blocks the loop for the call instead, but briefly.
"""

import asyncio
import threading
from collections.abc import Callable
from contextlib import suppress
from queue import SimpleQueue
from typing import Any, Generic, TypeVar

import anyio

from nodeagent.core.errors import ThreadStuck, WorkersExhausted
from nodeagent.core.log.lines import get_logger

T = TypeVar("T")

_STUCK_LIMIT = 4


class WorkerThread:
    """Runs one call after the other in a thread; belongs to the event loop's thread."""

    def __init__(self, name: str, *, stuck_limit: int = _STUCK_LIMIT) -> None:
        self.name = name
        self._stuck_limit = stuck_limit
        self._turn = anyio.Lock(fast_acquire=True)
        self._thread: _Thread | None = None
        self._stuck: list[_Thread] = []
        self._log = get_logger(component=name)

    async def run(
        self, call: Callable[[], T], *, timeout_seconds: float, what: str, patience_seconds: float = 0.0
    ) -> T:
        """The result or exception of `call`; `what` describes the call in errors and logs.

        The event loop stands still during the patience; afterwards the loop goes on, and the time counts.
        When the caller is cancelled meanwhile, the call goes on, and the thread counts as stuck until the call returns.

        Raises:
            ThreadStuck: The call is past the deadline.
            WorkersExhausted: Too many threads are stuck; the call was not tried.
        """
        async with self._turn:
            thread = self._free_thread(what)
            job = thread.give(call, what)
            if patience_seconds > 0 and job.wait(patience_seconds):
                return job.outcome()
            return await self._finish(thread, job, timeout_seconds)

    async def _finish(self, thread: "_Thread", job: "_Job[T]", timeout_seconds: float) -> T:
        try:
            with anyio.move_on_after(timeout_seconds):
                return await job.future()
            raise ThreadStuck(self.name, job.what, timeout_seconds)
        finally:
            if not job.has_ended:
                self._set_aside(thread)

    def stuck(self) -> tuple[str, ...]:
        """The calls of the stuck threads."""
        self._stuck = [thread for thread in self._stuck if thread.is_alive()]
        return tuple(thread.what for thread in self._stuck)

    def close(self) -> None:
        """Let the working thread end; stuck threads end by themselves or with the process."""
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


class _Job(Generic[T]):
    """One call: made in the worker thread, awaited in the loop's thread, blocking or not."""

    __slots__ = ("_call", "_ended", "_error", "_future", "_result", "has_ended", "what")

    def __init__(self, call: Callable[[], T], what: str) -> None:
        self.what = what
        self._call = call
        self._result: T | None = None
        self._error: BaseException | None = None
        self._future: asyncio.Future[T] | None = None
        self.has_ended = False
        """Whether the call was made; read by both threads."""
        self._ended = threading.Lock()
        self._ended.acquire()

    def make(self) -> None:
        """In the worker thread: make the call and keep result or exception."""
        try:
            self._result = self._call()
        except BaseException as error:  # noqa: BLE001  # the exception belongs to the caller, not to the worker thread
            self._error = error

    def announce(self) -> None:
        """In the worker thread: wake the waiter. Each side writes first and reads after, so no end is missed."""
        self.has_ended = True
        self._ended.release()
        future = self._future
        if future is not None:
            with suppress(RuntimeError):  # the loop was closed during the call, so no caller waits
                future.get_loop().call_soon_threadsafe(self._settle, future)

    def wait(self, seconds: float) -> bool:
        """Block until the end of the call, or for `seconds`; whether the call has ended."""
        return self._ended.acquire(timeout=seconds)

    def outcome(self) -> T:
        """The result or exception of an ended call."""
        if self._error is not None:
            raise self._error
        return self._result  # type: ignore[return-value]  # a call that did not raise has returned a T

    def future(self) -> asyncio.Future[T]:
        """The outcome as a future."""
        future: asyncio.Future[T] = asyncio.get_running_loop().create_future()
        self._future = future
        if self.has_ended:
            self._settle(future)
        return future

    def _settle(self, future: asyncio.Future[T]) -> None:
        if future.done():
            return
        if self._error is not None:
            future.set_exception(self._error)
        else:
            future.set_result(self._result)  # type: ignore[arg-type]  # as in `outcome`


class _Thread(threading.Thread):
    """Makes one call after the other until dismissed; a daemon, so that a stuck thread lets the process end."""

    def __init__(self, name: str) -> None:
        super().__init__(name=name, daemon=True)
        self._jobs: SimpleQueue[_Job[Any] | None] = SimpleQueue()
        self.what = ""
        self._given = 0
        self._announced = 0

    @property
    def is_idle(self) -> bool:
        """Whether every result has reached the loop; by two counts, one of each thread, so that no change is lost."""
        return self._announced == self._given

    def give(self, call: Callable[[], T], what: str) -> _Job[T]:
        """Queue the next call."""
        self._given += 1
        self.what = what
        job = _Job(call, what)
        self._jobs.put(job)
        return job

    def dismiss(self) -> None:
        """End after the present call."""
        self._jobs.put(None)

    def run(self) -> None:
        """The thread's own life."""
        while (job := self._jobs.get()) is not None:
            job.make()
            job.announce()
            self._announced += 1
