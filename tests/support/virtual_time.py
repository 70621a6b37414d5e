"""Time that jumps: an asyncio loop whose clock goes straight to the next timer when nothing else can happen.

A test marked `virtual_time` may wait an hour and takes no time; what it measures on the loop's clock is exact.

When the clock may jump. Every turn of the loop first looks whether a descriptor is ready, without waiting. Only when
none is, and no work is under way outside the loop, the clock jumps to the next timer. Work under way outside is
  - a thread that was not there when the loop began, unless it is an idle anyio worker or says `is_idle = True`;
  - a child process that was not there when the loop began, alive or not yet reaped.
While there is any, the clock runs at real speed, so nothing is declared late that is merely being worked on.
A thread that is done within two real seconds takes no time at all: how slow a busy disk is decides no test.
Sockets and pipes with both ends in this process need no such care: what is written is readable at once.
"""

import asyncio
import os
import selectors
import threading
import time
from selectors import SelectorKey
from typing import Final

from tests.support.guards.leaks import read_children

_REAL_SLICE_SECONDS: Final = 0.005
"""How long to wait for outside work before looking again whether there is any left."""

_UNNOTICED_SECONDS: Final = 2.0
"""For how long threads may be at work before the clock runs; only one that hangs on purpose takes longer."""

START_WALL: Final = 1_767_225_600.0
"""What `FakeClock.wall` says when the loop's clock says zero: the beginning of 2026."""


class JumpingSelector(selectors.DefaultSelector):
    """Waits by moving a clock instead of waiting, when nobody outside could interrupt the wait."""

    def __init__(self) -> None:
        super().__init__()
        self.now = 0.0
        self._present_threads = set(threading.enumerate())
        self._present_children = read_children()
        self._busy_since: dict[threading.Thread, float] = {}

    def select(self, timeout: float | None = None) -> list[tuple[SelectorKey, int]]:
        """Events that are ready; else the clock moves on by `timeout`, or by as much as really passed."""
        events = super().select(0)
        if events or timeout == 0:
            return events
        if not self._is_work_outside() and timeout is not None:
            # Work that ended between the two looks has left its word before it ended.
            events = super().select(0)
            if not events:
                self.now += timeout
            return events
        began = time.monotonic()
        events = super().select(_REAL_SLICE_SECONDS if timeout is None else min(timeout, _REAL_SLICE_SECONDS))
        if self._has_child_process() or not self._is_unnoticed(began):
            self.now += time.monotonic() - began
        return events

    def _is_unnoticed(self, now: float) -> bool:
        """Whether a thread is at work that has not been for long."""
        return any(now - since < _UNNOTICED_SECONDS for since in self._busy_since.values())

    def _is_work_outside(self) -> bool:
        now, busy = time.monotonic(), filter(self._is_busy, threading.enumerate())
        self._busy_since = {thread: self._busy_since.get(thread, now) for thread in busy}
        return bool(self._busy_since) or self._has_child_process()

    def _is_busy(self, thread: threading.Thread) -> bool:
        if thread in self._present_threads or getattr(thread, "is_idle", False):
            return False
        return thread not in getattr(thread, "idle_workers", ())

    def _has_child_process(self) -> bool:
        try:
            os.waitid(os.P_ALL, 0, os.WEXITED | os.WNOHANG | os.WNOWAIT)
        except ChildProcessError:
            return False  # asked first because it is quick, and nearly always the answer
        return not read_children() <= self._present_children


class VirtualTimeLoop(asyncio.SelectorEventLoop):
    """An event loop on a jumping clock that starts at zero."""

    def __init__(self) -> None:
        self._jumping = JumpingSelector()
        super().__init__(self._jumping)

    def time(self) -> float:
        return self._jumping.now


class FakeClock:
    """The kernel's Clock, tied to the running loop's time; outside a loop it stands where `advance` put it."""

    def __init__(self) -> None:
        self._ahead = 0.0

    def monotonic(self) -> float:
        """The loop's time, plus what was advanced by hand."""
        try:
            return asyncio.get_running_loop().time() + self._ahead
        except RuntimeError:
            return self._ahead

    def wall(self) -> float:
        """People's time, which goes exactly with the monotonic one."""
        return START_WALL + self.monotonic()

    def advance(self, seconds: float) -> None:
        """Let time pass for whoever only reads the clock; sleepers sleep on."""
        self._ahead += seconds
