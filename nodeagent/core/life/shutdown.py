"""Signals, and the hard exit as the last resort of a stop.

The first SIGTERM or SIGINT begins the graceful stop, the second cancels everything, SIGHUP asks for new settings.
From the first signal on, noticed by the event loop or not, a watchdog thread counts: past the total the process exits
hard with `HARD_EXIT_CODE`, because a service manager's SIGKILL would come without a word in the log.
Owns the signal handlers and the watchdog. Refuses to know the steps of a stop, and calls the given functions.
"""

import io
import os
import select
import signal
import sys
import threading
import time
from collections.abc import Callable
from types import TracebackType
from typing import Final, Self

import anyio
from anyio.abc import TaskStatus

from nodeagent.core.log.lines import get_logger

HARD_EXIT_CODE: Final = 70
"""Exit status when the stop was cut short by the watchdog (EX_SOFTWARE of sysexits)."""

TOTAL_SECONDS: Final = 18.0
"""From the first signal to the hard exit; the kubelet and systemd kill later."""

_log = get_logger(component="shutdown")


class ExitWatchdog:
    """Ends the process unless disarmed in time; a thread, because the loop may hang.

    The thread starts ahead of need: a process out of memory can start no more threads. Arming goes through a pipe,
    without a lock: the caller may be a signal handler.
    """

    def __init__(self, total_seconds: float, *, exit_process: Callable[[int], object] = os._exit) -> None:
        self._total_seconds = total_seconds
        self._exit_process = exit_process
        self._writing: int | None = None

    def start(self) -> None:
        """Start the thread, which counts once armed; until `disarm`."""
        reading, self._writing = os.pipe()
        threading.Thread(target=self._wait, args=(reading,), name="exit-watchdog", daemon=True).start()

    def arm(self) -> None:
        """Begin to count; arming again does not begin anew."""
        if self._writing is not None:
            os.write(self._writing, b"!")

    def disarm(self) -> None:
        """Stop counting, because the process ends by itself."""
        writing, self._writing = self._writing, None
        if writing is not None:
            os.close(writing)

    def _wait(self, reading: int) -> None:
        with open(reading, "rb", buffering=0) as told:
            if not told.read(1) or _is_closed_within(told, self._total_seconds):
                return
        # plain write rather than the log: the hanging thread may hold the log's lock
        line = f"nodeagent: not stopped after {self._total_seconds:g} s; exiting hard with status {HARD_EXIT_CODE}\n"
        os.write(sys.__stderr__.fileno() if sys.__stderr__ else 2, line.encode())
        self._exit_process(HARD_EXIT_CODE)


def _is_closed_within(told: io.FileIO, seconds: float) -> bool:
    """Whether the other end of the pipe is closed in time; further bytes change nothing."""
    until = time.monotonic() + seconds
    while select.select([told], [], [], max(0.0, until - time.monotonic()))[0]:
        if not told.read(1):
            return True
    return False


class Shutdown:
    """Turns signals into calls; use as a context manager round all work that must end before the process."""

    def __init__(
        self,
        *,
        on_stop: Callable[[], None],
        on_force: Callable[[], None],
        on_reload: Callable[[], None],
        watchdog: ExitWatchdog | None = None,
    ) -> None:
        self._on_stop, self._on_force, self._on_reload = on_stop, on_force, on_reload
        self._watchdog = watchdog or ExitWatchdog(TOTAL_SECONDS)
        self._stops = 0

    def __enter__(self) -> Self:
        self._watchdog.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self._watchdog.disarm()

    async def run(self, *, task_status: TaskStatus[None] = anyio.TASK_STATUS_IGNORED) -> None:
        """Listen until cancelled."""
        with anyio.open_signal_receiver(signal.SIGTERM, signal.SIGINT, signal.SIGHUP) as signals:
            for number in (signal.SIGTERM, signal.SIGINT):
                # Besides waking the loop, which may be busy: time runs from the signal on.
                signal.signal(number, lambda *_: self._watchdog.arm())
                signal.siginterrupt(number, False)  # noqa: FBT003 - the function takes it by place alone
            task_status.started()
            async for received in signals:
                self._handle(received)

    def stop(self, reason: str) -> None:
        """Begin the graceful stop, or at the second call cancel everything; for stops without a signal too."""
        self._stops += 1
        self._watchdog.arm()
        if self._stops == 1:
            _log.info("stop_requested", reason=reason)
            self._on_stop()
        else:
            _log.warning("stop_forced", reason=reason)
            self._on_force()

    def _handle(self, received: signal.Signals) -> None:
        if received is signal.SIGHUP:
            _log.info("reload_requested", reason=received.name)
            self._on_reload()
        else:
            self.stop(received.name)
