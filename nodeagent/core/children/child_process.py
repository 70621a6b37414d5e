"""One disposable child process: answers requests, each with a deadline, and is replaced after each failure.

Owns the child: spawn, one request at a time, kill, reap, pause, replace. A request past the deadline raises
`ChildStuck` and costs the child its life; a child ending by itself raises `ChildDied` in the waiting request.
A child that survives SIGKILL (in uninterruptible sleep in a driver) is left behind, counted and named: the next child
starts beside the old, which keeps nothing of the agent but the far ends of three pipes.
Refuses to know the meaning of payloads, and to keep any state for the child's sake.

    child = ChildProcess([sys.executable, "-m", "package.worker"], env={}, name="gpu-worker")
    async with create_task_group() as tasks:
        await tasks.start(child.run)
        answer = await child.request(b"…", timeout_seconds=2)
"""

import subprocess
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from random import Random, SystemRandom

import anyio
from anyio.abc import TaskStatus
from msgspec import Struct, field

from nodeagent.core.channels.mailbox import BoundedQueue, Waker
from nodeagent.core.children.frames import MAX_PAYLOAD_BYTES, encode_frame
from nodeagent.core.children.incarnation import Incarnation
from nodeagent.core.children.spawn import spawn
from nodeagent.core.errors import ChildDied, ChildStuck, ChildUnavailable
from nodeagent.core.life.backoff import Backoff, BackoffSettings
from nodeagent.core.log.lines import get_logger

_LOOKS_A_STEP = 4
_UNASKED_LIMIT = 1024
"""Unasked frames kept for a late reader; a driver sends single events or tens of events."""


class ChildSettings(Struct, frozen=True):
    """Treatment of a failed child."""

    backoff: BackoffSettings = field(
        default_factory=lambda: BackoffSettings(first_seconds=0.02, limit_seconds=10.0, stable_seconds=30.0)
    )
    """Pauses between replacements; the first is short, because callers wait for the new child."""

    kill_seconds: float = 1.0
    """How long a killed child may take to be gone before it is left behind."""

    max_payload_bytes: int = MAX_PAYLOAD_BYTES


class ChildStatistics(Struct, frozen=True):
    """The state of the child, for debugging."""

    pid: int | None
    """`None` while there is no child."""
    starts: int
    stuck: int
    """Requests past their deadline."""
    died: int
    """Children that ended unasked."""
    left_behind: tuple[int, ...]
    """Processes that survived SIGKILL, by pid."""
    unasked_lost: int
    """Unasked frames dropped for lack of a reader."""


class ChildProcess:
    """Keeps a child process alive and sends requests to the child; belongs to the event loop's thread."""

    def __init__(
        self,
        argv: Sequence[str],
        *,
        env: Mapping[str, str],
        name: str,
        settings: ChildSettings | None = None,
        rng: Random | None = None,
        kill: Callable[[subprocess.Popen[bytes]], None] = subprocess.Popen.kill,
    ) -> None:
        self.name = name
        self._argv, self._env = tuple(argv), dict(env)
        self._settings = settings or ChildSettings()
        self._backoff = Backoff(self._settings.backoff, rng or SystemRandom())
        self._kill = kill
        self._turn = anyio.Lock()
        # the child for requests, and the child to reap: the same until given up
        self._current: Incarnation | None = None
        self._serving: Incarnation | None = None
        self._left_behind: list[Incarnation] = []
        self._changed = Waker()
        self._pausing: anyio.CancelScope | None = None
        self._ending = anyio.Event()
        self._why_none = "it was not started"
        self._starts_at = 0.0
        self._unasked: BoundedQueue[bytes] = BoundedQueue(_UNASKED_LIMIT)
        self._requests = self._starts = self._stuck = self._died = self._unasked_lost = 0
        self._log = get_logger(component=name)

    async def run(self, *, task_status: TaskStatus[None] = anyio.TASK_STATUS_IGNORED) -> None:
        """Keep a child alive until `end`; started once the first start was tried."""
        self._current = self._spawn()
        task_status.started()
        await self._serve_and_pause()
        while not self._ending.is_set():
            self._current = self._spawn()
            self._changed.wake()
            await self._serve_and_pause()

    async def request(self, payload: bytes, *, timeout_seconds: float, is_stepwise: bool = False) -> bytes:
        """The child's answer; the time counts from the request's turn, including the wait for a fresh child.

        With `is_stepwise` each step announced by the child gets the whole time, measured to a quarter.

        Raises:
            ChildStuck: No answer in time; the child is killed and replaced.
            ChildDied: The child ended before the answer and is replaced.
            ChildUnavailable: There is no child, and no fresh child is due in time.
            FrameTooLarge: The payload is over the limit and was not sent.
        """
        async with self._turn:
            self._requests = self._requests % 0xFFFF_FFFF + 1
            frame = encode_frame(self._requests, payload, limit_bytes=self._settings.max_payload_bytes)
            deadline = anyio.current_time() + timeout_seconds
            child = await self._wait_child(deadline)
            with anyio.CancelScope(deadline=deadline) as scope:
                if is_stepwise:
                    look = _follow_steps(child, scope, timeout_seconds)
                    answer = await child.ask(
                        self._requests, frame, look_seconds=timeout_seconds / _LOOKS_A_STEP, look=look
                    )
                else:
                    answer = await child.ask(self._requests, frame)
                if answer is None:
                    raise ChildDied(self.name, child.pid, child.describe_end(), child.last_step)
                return answer
            assert scope.cancelled_caught
            self._stuck += 1
            step = child.read_step()
            child.give_up(is_stuck=True)
            self._current = None
            raise ChildStuck(self.name, child.pid, timeout_seconds, step)

    async def unasked(self) -> AsyncIterator[bytes]:
        """The unasked frames of all incarnations; for one reader."""
        while True:
            payload, lost = await self._unasked.take()
            self._unasked_lost += lost
            yield payload

    async def end(self, *, at_once: bool = False) -> None:
        """End the child and start no other; returns when the child is gone or left behind.

        A child may finish and exit by itself; `at_once` kills the child.
        """
        self._note_ending()
        if self._current is not None:
            self._current.give_up(is_stuck=at_once)
            self._current = None
        if self._serving is not None:
            await self._serving.ended.wait()

    def statistics(self) -> ChildStatistics:
        """The counts of starts and failures, and the present child."""
        self._forget_gone()
        return ChildStatistics(
            pid=self._current.pid if self._current else None,
            starts=self._starts,
            stuck=self._stuck,
            died=self._died,
            left_behind=tuple(child.pid for child in self._left_behind),
            unasked_lost=self._unasked_lost,
        )

    def _spawn(self) -> Incarnation | None:
        self._starts += 1
        try:
            process = spawn(self._argv, self._env)
        except OSError as error:
            self._why_none = f"it could not be started ({error})"
            self._log.error("child_start_failed", program=self._argv[0], error=error)
            return None
        child = Incarnation(process, kill=self._kill)
        self._log.debug("child_started", pid=child.pid)
        return child

    async def _serve_and_pause(self) -> None:
        ran_seconds = await self._serve()
        if not self._ending.is_set():
            await self._pause(ran_seconds)

    async def _serve(self) -> float:
        """Serve the present child until the end; the seconds for which the child ran."""
        child = self._serving = self._current
        if child is None:
            return 0.0
        try:
            await child.live(
                on_unasked=self._unasked.put_nowait,
                on_line=lambda line: self._log.info("child_said", pid=child.pid, line=line),
                kill_seconds=self._settings.kill_seconds,
                limit_bytes=self._settings.max_payload_bytes,
            )
        except BaseException:
            # only cancellation comes here: the owner is stopping, and the child's end is expected
            self._note_ending()
            raise
        finally:
            self._note_end(child)
        return anyio.current_time() - child.began

    def _note_ending(self) -> None:
        self._ending.set()
        self._why_none = "it was ended"
        if self._pausing is not None:
            self._pausing.cancel()
        self._changed.wake()

    def _note_end(self, child: Incarnation) -> None:
        how = child.describe_end()
        was_unexpected = self._current is child and not self._ending.is_set()
        self._current = self._serving = None
        if child.is_left_behind():
            self._left_behind.append(child)
            self._log.error("child_left_behind", pid=child.pid, left_behind=len(self._left_behind))
        if was_unexpected:
            self._died += 1
            self._why_none = f"the last one {how}"
            self._log.warning("child_died", pid=child.pid, how=how)

    async def _pause(self, ran_seconds: float) -> None:
        delay = self._backoff.delay_after_failure(ran_seconds=ran_seconds)
        self._starts_at = anyio.current_time() + delay
        self._changed.wake()
        with anyio.CancelScope() as self._pausing:
            await anyio.sleep(delay)

    async def _wait_child(self, deadline: float) -> Incarnation:
        while (child := self._current) is None or child.is_over:
            if self._ending.is_set() or self._starts == 0 or self._starts_at > deadline:
                raise ChildUnavailable(self.name, self._why_none)
            # the deadline passes only while an ended child is slow to go
            with anyio.CancelScope(deadline=deadline):
                await self._changed.wait()
            self._check_in_time(deadline)
        return child

    def _check_in_time(self, deadline: float) -> None:
        if anyio.current_time() >= deadline:
            raise ChildUnavailable(self.name, f"no fresh child in time; {self._why_none}")

    def _forget_gone(self) -> None:
        self._left_behind = [child for child in self._left_behind if child.is_left_behind()]


def _follow_steps(child: Incarnation, scope: anyio.CancelScope, timeout_seconds: float) -> Callable[[], None]:
    """Extend the deadline each time the child has announced another step."""
    seen = ""

    def look() -> None:
        nonlocal seen
        step = child.read_step()
        if step != seen:
            seen, scope.deadline = step, anyio.current_time() + timeout_seconds

    return look
