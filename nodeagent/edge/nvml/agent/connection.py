"""The agent's end of the pipe to the worker: one request at a time, each by a deadline, a fresh worker when needed.

Owns the worker process through `ChildProcess`, and whether the driver is released.
Refuses to know GPUs: the client judges which GPU hung a request.
"""

from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from contextlib import asynccontextmanager
from typing import TypeVar

import anyio
import msgspec
from anyio.abc import TaskGroup, TaskStatus

from nodeagent.core.channels.mailbox import BoundedQueue
from nodeagent.core.children.child_process import ChildProcess, ChildSettings, ChildStatistics
from nodeagent.core.errors import ChildDied, ChildError, ChildStuck
from nodeagent.core.life.backoff import BackoffSettings
from nodeagent.edge.nvml.agent.command import render_command
from nodeagent.edge.nvml.agent.protocol import OPENED, Answer, Failure, Request, encode_request
from nodeagent.model.driver import LibraryAnswer
from nodeagent.model.errors import DriverReleased, DriverStuck, DriverUnavailable

R = TypeVar("R")
T = TypeVar("T")

_SAID_LIMIT = 1024
"""Events kept for a reader that is late; they come by ones and tens."""

_CHILD_SETTINGS = ChildSettings(
    # Pauses stay short, so that several GPUs that hang one after the other do not keep the good ones waiting; whoever
    # asks does so about once a second, which bounds what a library that always crashes can cost.
    backoff=BackoffSettings(first_seconds=0.02, limit_seconds=0.5, stable_seconds=4.0),
    # A process that SIGKILL does not end at once sleeps in the driver: it is left behind and the next one started.
    kill_seconds=0.08,
)


class RequestFailed(Exception):
    """The worker answered that a call failed; the caller knows whether one GPU or all GPUs are concerned."""

    def __init__(self, failure: Failure) -> None:
        super().__init__(failure.message)
        self.failure = failure


class WorkerDied(DriverUnavailable):
    """A question ended the worker: the library crashed over the question, or over an earlier question."""

    def __init__(self, what: str, how: str, step: str = "") -> None:
        super().__init__("use NVML", f"{what} ended the worker: it {how}")
        self.how, self.step = how, step


class WorkerStuck(DriverStuck):
    """A question did not come back; `step` is the worker's last announcement."""

    def __init__(self, what: str, timeout_seconds: float, step: str) -> None:
        super().__init__(what, timeout_seconds)
        self.step = step


class Connection:
    """Asks the worker; each new worker opens the library on demand."""

    def __init__(
        self,
        root: str,
        library: str,
        open_seconds: float,
        environment: Mapping[str, str],
        *,
        sysfs: str = "",
    ) -> None:
        self._argv, self._sysfs = render_command(root, library), sysfs
        self._environment, self._open_seconds = dict(environment), open_seconds
        self._child: ChildProcess | None = None
        self._ended = ChildStatistics(pid=None, starts=0, stuck=0, died=0, left_behind=(), unasked_lost=0)
        self._haunted: list[ChildProcess] = []
        self._tasks: TaskGroup | None = None
        self._changing = anyio.Lock()
        self._released = ""
        self._opened_pid: int | None = None
        self._at_hand = anyio.Event()
        self._at_hand.set()
        self._said: BoundedQueue[bytes | None] = BoundedQueue(_SAID_LIMIT)
        self.opened = 0
        """How often the library was opened: with each new worker, handles and registrations are gone."""

    async def start(self, tasks: TaskGroup) -> None:
        """Begin, with tasks that live as long as the group."""
        self._tasks = tasks
        await self._start_child()

    async def ask(
        self,
        request: Request,
        decoder: msgspec.json.Decoder[Answer[T]],
        timeout_seconds: float,
        what: str,
        *,
        cold_seconds: float | None = None,
        is_stepwise: bool = False,
    ) -> T | None:
        """The worker's answer; `cold_seconds` is the deadline for a new worker's first request.

        With `is_stepwise` the deadline is for each GPU of the question.

        Raises:
            RequestFailed: The worker answered with a failure.
            WorkerDied: The worker died over the request, and so did the next worker.
            DriverStuck: No answer in time; the worker is being replaced.
            DriverReleased: The driver was released on purpose.
            DriverUnavailable: No worker to ask.
        """

        async def ask_cold() -> Answer[T]:
            # The opening has its own deadline: a worker that has yet to start must not use up a GPU's short time.
            await self.open()
            return await self._request(request, decoder, cold_seconds or timeout_seconds, what, is_stepwise=is_stepwise)

        async def ask_once() -> Answer[T]:
            await self._at_hand.wait()
            if self.is_fresh():
                return await ask_cold()
            answer = await self._request(request, decoder, timeout_seconds, what, is_stepwise=is_stepwise)
            # Closed: the worker was replaced between the look and the question.
            return await ask_cold() if answer.closed else answer

        return _unpack(await _try_twice(ask_once))

    async def open(self) -> LibraryAnswer:
        """Have the worker load and initialise the library, unless it has.

        Raises:
            RequestFailed: NVML does not work, and says or shows why.
            DriverError: as in `ask`.
        """
        what = "initialising NVML"

        async def open_once() -> Answer[LibraryAnswer]:
            return await self._request(Request(do="open", sysfs=self._sysfs), OPENED, self._open_seconds, what)

        try:
            answer = _unpack(await _try_twice(open_once))
        except WorkerDied as error:
            raise DriverUnavailable("use NVML", f"{what} ended the worker: it {error.how}") from error
        assert answer is not None
        self._note_opened()
        return answer

    async def renew(self) -> None:
        """Replace the worker, so that a new process sees the driver afresh."""
        async with self._changing:
            if not self._released:
                await self._end_child()
                await self._start_child()

    @asynccontextmanager
    async def set_aside(self) -> AsyncIterator[None]:
        """Hold no handle for as long as the block lasts; questions meanwhile wait for the end."""
        async with self._changing:
            self._at_hand = anyio.Event()
            await self._end_child()
            try:
                yield
            finally:
                with anyio.CancelScope(shield=True):
                    if not self._released:
                        await self._start_child()
                    self._at_hand.set()

    async def release(self, reason: str) -> None:
        """End the worker and all handles."""
        async with self._changing:
            self._released = reason
            await self._end_child()
            self._said.put_nowait(None)

    async def resume(self) -> None:
        """Take the driver back."""
        async with self._changing:
            if self._released:
                self._released = ""
                await self._start_child()

    def statistics(self) -> ChildStatistics | None:
        """Statistics of the present worker; `None` while the driver is released."""
        return None if self._child is None else self._child.statistics()

    def totals(self) -> ChildStatistics:
        """Statistics of all workers since the agent's start, workers before a release included."""
        whole = self._ended
        for child in (*self._haunted, *([self._child] if self._child is not None else [])):
            whole = add_statistics(whole, child.statistics(), with_counts=child is self._child)
        return whole

    @property
    def released(self) -> str:
        """The reason of the release; empty without a release."""
        return self._released

    async def wait_said(self) -> bytes | None:
        """The worker's next report; `None` as a sign that the driver was opened anew or released."""
        payload, _lost = await self._said.take()
        return payload

    async def _request(
        self,
        request: Request,
        decoder: msgspec.json.Decoder[Answer[T]],
        timeout_seconds: float,
        what: str,
        *,
        is_stepwise: bool = False,
    ) -> Answer[T]:
        await self._at_hand.wait()
        try:
            payload = await self._get_child().request(
                encode_request(request), timeout_seconds=timeout_seconds, is_stepwise=is_stepwise
            )
            return decoder.decode(payload)
        except ChildDied as error:
            raise WorkerDied(what, error.how, error.step) from error
        except ChildStuck as error:
            raise WorkerStuck(what, timeout_seconds, error.step) from error
        except ChildError as error:
            raise DriverUnavailable("ask the NVML worker", str(error)) from error
        except msgspec.DecodeError as error:
            raise DriverUnavailable("understand the NVML worker", f"{what}: {error}") from error

    def _note_opened(self) -> None:
        statistics = self.statistics()
        pid = None if statistics is None else statistics.pid
        if pid != self._opened_pid:
            self._opened_pid = pid
            self.opened += 1
            self._said.put_nowait(None)

    def is_fresh(self) -> bool:
        """Whether the present worker has yet to open the library."""
        if self._opened_pid is None or not self._at_hand.is_set():
            return True
        return self._get_child().statistics().pid != self._opened_pid

    def _get_child(self) -> ChildProcess:
        if self._released:
            raise DriverReleased(self._released)
        if self._child is None:
            raise DriverUnavailable("ask the NVML worker", "it is not running")
        return self._child

    async def _start_child(self) -> None:
        assert self._tasks is not None
        child = ChildProcess(self._argv, env=self._environment, name="nvml-worker", settings=_CHILD_SETTINGS)
        self._child = child
        await self._tasks.start(self._live, child, name="nvml worker")

    async def _live(self, child: ChildProcess, *, task_status: TaskStatus[None]) -> None:
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(self._pass_on, child, name="nvml worker events")
            await child.run(task_status=task_status)
            tasks.cancel_scope.cancel()

    async def _pass_on(self, child: ChildProcess) -> None:
        async for payload in child.unasked():
            self._said.put_nowait(payload)

    async def _end_child(self) -> None:
        child, self._child = self._child, None
        if child is not None:
            await child.end()
            self._ended = add_statistics(self._ended, child.statistics(), with_processes=False)
            # Their processes may outlive them: whether they are gone meanwhile is asked anew each time.
            self._haunted = [one for one in (*self._haunted, child) if one.statistics().left_behind]


def add_statistics(
    left: ChildStatistics, right: ChildStatistics, *, with_counts: bool = True, with_processes: bool = True
) -> ChildStatistics:
    """The sum of both, or only the counts or the processes of the second."""
    counts = int(with_counts)
    return ChildStatistics(
        pid=right.pid,
        starts=left.starts + counts * right.starts,
        stuck=left.stuck + counts * right.stuck,
        died=left.died + counts * right.died,
        left_behind=(*left.left_behind, *right.left_behind) if with_processes else left.left_behind,
        unasked_lost=left.unasked_lost + counts * right.unasked_lost,
    )


async def _try_twice(attempt: Callable[[], Awaitable[R]]) -> R:
    """Once more after a death: the worker may have ended itself to be replaced, or fallen victim to an earlier call."""
    try:
        return await attempt()
    except WorkerDied:
        return await attempt()


def _unpack(answer: Answer[T]) -> T | None:
    if answer.failure is not None:
        raise RequestFailed(answer.failure)
    if answer.closed:
        raise DriverUnavailable("ask the NVML worker", "it is replaced faster than it can be asked")
    return answer.value
