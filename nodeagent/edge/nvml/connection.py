"""The agent's end of the pipe to the worker: one request at a time, each by its deadline, a fresh worker when needed.

Owns the worker process through `ChildProcess`, and whether the driver is released.
Refuses to know GPUs: which of them hung a request is the client's to judge.
"""

import importlib.util
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import TypeVar

import anyio
import msgspec
from anyio.abc import TaskGroup, TaskStatus

import nodeagent
from nodeagent.edge.nvml.protocol import OPENED, Answer, Failure, Request, encode_request
from nodeagent.kernel.backoff import BackoffSettings
from nodeagent.kernel.child_process import ChildProcess, ChildSettings, ChildStatistics
from nodeagent.kernel.errors import ChildDied, ChildError, ChildStuck
from nodeagent.kernel.mailbox import BoundedQueue
from nodeagent.model.driver import NvmlAnswer
from nodeagent.model.errors import DriverReleased, DriverStuck, DriverUnavailable

T = TypeVar("T")

_SAID_LIMIT = 1024
"""Events kept for a reader that is late; they come by ones and tens."""

_LAUNCH = "import sys; sys.path.extend(sys.argv[1:3]); from nodeagent.edge.nvml.launch import main; main(sys.argv[3:])"
_CHILD_SETTINGS = ChildSettings(
    # Pauses stay short, so that several GPUs that hang one after the other do not keep the good ones waiting; whoever
    # asks does so about once a second, which bounds what a library that always crashes can cost.
    backoff=BackoffSettings(first_seconds=0.02, limit_seconds=0.5, stable_seconds=4.0),
    # A process that SIGKILL does not end at once sleeps in the driver: it is left behind and the next one started.
    kill_seconds=0.05,
)


class RequestFailed(Exception):
    """The worker answered that a call failed; the caller knows whether that concerns one GPU or all."""

    def __init__(self, failure: Failure) -> None:
        super().__init__(failure.message)
        self.failure = failure


class WorkerDied(DriverUnavailable):
    """A question ended the worker, and the next one too: the library crashes over it."""

    def __init__(self, what: str, how: str) -> None:
        super().__init__("use NVML", f"{what} ended the worker twice: it {how}")


class Connection:
    """Asks the worker; the library is opened on demand in each new one."""

    def __init__(self, root: str, library: str, open_seconds: float, environment: Mapping[str, str]) -> None:
        self._argv = render_command(root, library)
        self._environment, self._open_seconds = dict(environment), open_seconds
        self._child: ChildProcess | None = None
        self._tasks: TaskGroup | None = None
        self._changing = anyio.Lock()
        self._released = ""
        self._opened_pid: int | None = None
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
    ) -> T | None:
        """The worker's answer; `cold_seconds` is the time allowed where this request is a new worker's first.

        Raises:
            RequestFailed: the worker answered that it cannot be had.
            WorkerDied: the worker died over this, and so did the next one.
            DriverStuck: no answer in time; the worker is being replaced.
            DriverReleased: the driver was given up on purpose.
            DriverUnavailable: there is no worker to ask.
        """
        deaths = 0
        while True:
            if self._is_fresh():
                # First, and by its own deadline: a worker that has yet to start must not use up a GPU's short time.
                await self.open()
                timeout_seconds = cold_seconds or timeout_seconds
            try:
                answer = await self._request(request, decoder, timeout_seconds, what)
            except ChildDied as error:
                # Once more: it may have ended itself to be replaced, or fallen victim to what was asked before.
                deaths += 1
                if deaths > 1:
                    raise WorkerDied(what, error.how) from error
                continue
            if answer.failure is not None:
                raise RequestFailed(answer.failure)
            if not answer.closed:
                return answer.value
            self._opened_pid = None  # replaced between the look and the question

    async def open(self) -> NvmlAnswer:
        """Have the worker load and initialise the library, unless it has.

        Raises:
            RequestFailed: NVML does not work, and says or shows why.
            DriverError: as in `ask`.
        """
        request, what = Request(do="open"), "initialising NVML"
        try:
            answer = await self._request(request, OPENED, self._open_seconds, what)
        except ChildDied:
            try:
                answer = await self._request(request, OPENED, self._open_seconds, what)
            except ChildDied as error:
                raise DriverUnavailable("use NVML", f"{what} ended the worker: it {error.how}") from error
        if answer.failure is not None:
            raise RequestFailed(answer.failure)
        assert answer.value is not None
        child = self._child
        self._opened_pid = child.statistics().pid if child is not None else None
        if answer.value.is_first:
            self.opened += 1
            self._said.put_nowait(None)
        return answer.value.nvml

    async def renew(self) -> None:
        """Replace the worker, so that a new process sees the driver afresh."""
        async with self._changing:
            if not self._released:
                await self._end_child()
                await self._start_child()

    async def release(self, reason: str) -> None:
        """End the worker, and with it every handle."""
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
        """How the present worker does; nothing while there is none on purpose."""
        return None if self._child is None else self._child.statistics()

    @property
    def released(self) -> str:
        """Why the driver was given up; empty when it was not."""
        return self._released

    async def wait_said(self) -> bytes | None:
        """What a worker says unasked; nothing as a sign that the driver was opened anew or released."""
        payload, _lost = await self._said.take()
        return payload

    async def _request(
        self, request: Request, decoder: msgspec.json.Decoder[Answer[T]], timeout_seconds: float, what: str
    ) -> Answer[T]:
        try:
            payload = await self._get_child().request(encode_request(request), timeout_seconds=timeout_seconds)
            return decoder.decode(payload)
        except ChildDied:
            raise
        except ChildStuck as error:
            raise DriverStuck(what, timeout_seconds) from error
        except ChildError as error:
            raise DriverUnavailable("ask the NVML worker", str(error)) from error
        except msgspec.ValidationError as error:
            raise DriverUnavailable("understand the NVML worker", f"{what}: {error}") from error

    def _is_fresh(self) -> bool:
        """Whether the present worker, if there is one, has yet to open the library."""
        return self._opened_pid is None or self._get_child().statistics().pid != self._opened_pid

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


def render_command(root: str, library: str) -> list[str]:
    """The worker's command line: an isolated interpreter that looks for modules in two places beside its own."""
    binding = importlib.util.find_spec("pynvml")
    assert binding is not None
    assert binding.origin is not None
    places = [str(Path(nodeagent.__file__).parents[1]), str(Path(binding.origin).parent)]
    return [sys.executable, "-I", "-S", "-E", "-c", _LAUNCH, *places, root, library]
