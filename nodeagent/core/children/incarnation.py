"""One process of a `ChildProcess`, from its start to its end: the pipes, the one pending request, the reaping.

Owns the descriptors and the process. Refuses to start a replacement: the owner's work.
"""

import os
import signal
import subprocess
from collections.abc import Callable
from pathlib import Path

import anyio
import anyio.lowlevel

from nodeagent.core.channels.mailbox import Waker
from nodeagent.core.children.frames import UNASKED, FrameDecoder
from nodeagent.core.children.pipes import read_lines, read_some, write_whole
from nodeagent.core.errors import FrameError

_POLITE_SECONDS = 0.25
"""How long a child may take to exit after the end of the stream, so that the child's exit status is seen."""

_REAP_FIRST_SECONDS = 0.001
_REAP_LIMIT_SECONDS = 0.05


class Incarnation:
    """One process and the pending request, if any."""

    def __init__(self, process: subprocess.Popen[bytes], *, kill: Callable[[subprocess.Popen[bytes]], None]) -> None:
        self._process = process
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        assert self._process.stderr is not None
        self._files = (self._process.stdin, self._process.stdout, self._process.stderr)
        self._stdin, self._stdout, self._stderr = (file.fileno() for file in self._files)
        for descriptor in (self._stdin, self._stdout, self._stderr):
            os.set_blocking(descriptor, False)
        self._kill = kill
        self._reading = anyio.CancelScope()
        self._is_stuck = False
        self._broken: FrameError | None = None
        self._news = Waker()
        self._expected: int | None = None
        self._answer: bytes | None = None
        self._asking: anyio.CancelScope | None = None
        self.pid = self._process.pid
        self.is_over = False
        """Whether the process will give no more answers, though perhaps not gone yet."""
        self.last_step = ""
        """The last step announced before the process ended or was given up."""
        self.began = anyio.current_time()
        self.ended = anyio.Event()

    async def live(
        self,
        on_unasked: Callable[[bytes], object],
        on_line: Callable[[str], None],
        kill_seconds: float,
        limit_bytes: int,
    ) -> None:
        """Serve until the process ends or is given up; afterwards the process is gone, or `is_left_behind`."""
        try:
            async with anyio.create_task_group() as tasks:
                tasks.start_soon(read_lines, self._stderr, on_line, name=f"stderr of pid {self.pid}")
                try:
                    with self._reading:
                        await self._read_answers(on_unasked, limit_bytes)
                finally:
                    with anyio.CancelScope(shield=True):
                        await self._bring_to_its_end(kill_seconds)
                    # the last lines may still be in the pipe; a process left behind holds the pipe open
                    tasks.cancel_scope.deadline = anyio.current_time() + _POLITE_SECONDS
        finally:
            for file in self._files:
                file.close()

    async def ask(
        self, request: int, frame: bytes, *, look_seconds: float | None = None, look: Callable[[], None] | None = None
    ) -> bytes | None:
        """The answer; `None` when the process ended first. Not to be called once `is_over`.

        Until the answer, `look` is called each `look_seconds`.
        """
        self._expected, self._answer = request, None
        try:
            with anyio.CancelScope() as self._asking:
                await self._send(frame)
                await self._wait_answer(look_seconds, look)
        except BrokenPipeError:
            pass  # the process is ending; the reading side will notice soon
        finally:
            self._asking = self._expected = None
        if self._answer is None:
            await self.ended.wait()
        return self._answer

    def give_up(self, *, is_stuck: bool) -> None:
        """End the process: a stuck process is killed at once, any other may exit by itself first."""
        self._is_stuck = is_stuck
        if is_stuck:
            self._kill(self._process)
        self._reading.cancel()

    def read_step(self) -> str:
        """The step announced by `announce_step`, at first the program's name; also after the end of the process."""
        try:
            return Path(f"/proc/{self.pid}/comm").read_text(encoding="utf-8", errors="replace").rstrip("\n")
        except OSError:
            return self.last_step

    def is_left_behind(self) -> bool:
        """Whether the process is still there after the kill; reaps a process that has ended."""
        return self._process.poll() is None

    def describe_end(self) -> str:
        """The end of the process, as the middle of a sentence."""
        if self._broken is not None:
            return f"sent what is no frame ({self._broken})"
        status = self._process.returncode
        if status is None:
            return "could not be killed"
        if status >= 0:
            return f"exited with status {status}"
        return f"was killed by {signal.Signals(-status).name}"

    async def _send(self, frame: bytes) -> None:
        try:
            await write_whole(self._stdin, frame)
        except anyio.get_cancelled_exc_class():
            # an incomplete frame may be in the pipe, and the next frame would be read as its rest
            self.give_up(is_stuck=True)
            raise

    async def _wait_answer(self, look_seconds: float | None, look: Callable[[], None] | None) -> None:
        while self._answer is None:
            if look is None:
                await self._news.wait()
                continue
            with anyio.move_on_after(look_seconds):
                await self._news.wait()
            if self._answer is None:
                look()

    async def _read_answers(self, on_unasked: Callable[[bytes], object], limit_bytes: int) -> None:
        decoder = FrameDecoder(limit_bytes=limit_bytes)
        try:
            while data := await read_some(self._stdout):
                for request, payload in decoder.feed(data):
                    self._sort(request, payload, on_unasked)
            decoder.end()
        except FrameError as error:
            self._broken = error

    def _sort(self, request: int, payload: bytes, on_unasked: Callable[[bytes], object]) -> None:
        if request == UNASKED:
            on_unasked(payload)
        elif request == self._expected:
            self._answer = payload
            self._news.wake()
        # any other frame is the late answer to an abandoned request

    async def _bring_to_its_end(self, kill_seconds: float) -> None:
        self.is_over = True
        if self._asking is not None:
            self.last_step = self.read_step()
        while self._asking is not None:  # a closed pipe must not be in use
            self._asking.cancel()
            await anyio.lowlevel.checkpoint()
        self._files[0].close()  # the child reads the end of the stream and exits
        if self._is_stuck or not await self._wait_gone(_POLITE_SECONDS):
            self._kill(self._process)
            await self._wait_gone(kill_seconds)
        self.ended.set()

    async def _wait_gone(self, seconds: float) -> bool:
        # polled, because a descriptor for a process needs a kernel newer than long-lived distributions ship
        pause = _REAP_FIRST_SECONDS
        deadline = anyio.current_time() + seconds
        while self._process.poll() is None:
            if anyio.current_time() >= deadline:
                return False
            await anyio.sleep(pause)
            pause = min(2 * pause, _REAP_LIMIT_SECONDS)
        return True
