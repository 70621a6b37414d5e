"""How long a restarted runtime is waited for: longer than the settings say where it took longer before, or gets on.

Restarting it in the middle of its start is worse than waiting: a daemon with many containers on a slow disk then begins
all over again. So what it does counts: its processor time, what it reads and writes, and its own word that it is not
ready yet. One that died and was started again by others makes no progress by that.
"""

from collections.abc import Iterable
from typing import Final

from nodeagent.model.runtime import DaemonProcess

_MARGIN: Final = 2.0
"""How many times as long as at its last start a runtime may take."""
_MOST: Final = 10.0
"""How many times the setting it may take at most as long as it gets on."""
_BUSY_SHARE: Final = 0.02
"""Of a processor; a daemon that only waits uses less."""
_TICK_SECONDS: Final = 0.02
"""How exactly the kernel tells when a process began."""
_NOT_YET: Final = "server is not initialized yet"
"""How containerd's CRI answers while it reads its containers (in its package `instrument`)."""
_FIRST_PAUSE_SECONDS: Final = 60.0
_LAST_PAUSE_SECONDS: Final = 3600.0


class Patience:
    """Whether one restart is still waited for."""

    def __init__(self, timeout_seconds: float, took_seconds: float, now: float) -> None:
        """Begin to wait.

        Args:
            timeout_seconds: what the settings allow without any progress.
            took_seconds: how long this node's daemon took the last time; zero where nobody knows.
            now: by the clock whose times all others are of.
        """
        self._limit = max(timeout_seconds, _MARGIN * took_seconds)
        self._began = self._progressed = now
        self._end = now + max(self._limit, _MOST * timeout_seconds)
        self._daemon: DaemonProcess | None = None

    def note_processes(self, processes: Iterable[DaemonProcess], now: float) -> None:
        """What the processes of its program have done by now; those from before the restart do not count."""
        started = [each for each in processes if each.age_seconds <= now - self._began + _TICK_SECONDS]
        if self._daemon is None:
            self._daemon = started[0] if started else None
            self._progressed = now if started else self._progressed
            return
        found = next((each for each in started if each.pid == self._daemon.pid), self._daemon)
        busy_seconds = found.cpu_seconds - self._daemon.cpu_seconds
        if busy_seconds > _BUSY_SHARE * (now - self._progressed) or found.moved_bytes > self._daemon.moved_bytes:
            self._daemon, self._progressed = found, now

    def note_silence(self, reason: str, now: float) -> None:
        """Why it does not answer yet, in its own words."""
        if _NOT_YET in reason:
            self._progressed = now

    def is_over(self, now: float) -> bool:
        """Whether it has had its time."""
        return now >= min(self._progressed + self._limit, self._end)

    def waited_seconds(self, now: float) -> float:
        """For how long by now."""
        return now - self._began


class Pause:
    """When the next restart may be: one that somebody's changes call for again and again has to wait ever longer."""

    def __init__(self) -> None:
        self._count = 0
        self._last = 0.0

    def note_restart(self, now: float) -> None:
        """Note that the runtime was just restarted."""
        self._count = 1 if now >= self._last + _LAST_PAUSE_SECONDS else self._count + 1
        self._last = now

    def forget(self) -> None:
        """A person has asked for something else, and waits for it."""
        self._count = 0

    def left_seconds(self, now: float) -> float:
        """For how long none may be; zero when one may."""
        if not self._count:
            return 0.0
        pause = min(_FIRST_PAUSE_SECONDS * 2.0 ** (self._count - 1), _LAST_PAUSE_SECONDS)
        return max(0.0, self._last + pause - now)
