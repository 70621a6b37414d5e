"""The patience with a restarted runtime: longer than in the settings after a slow start before, or during progress.

A second restart in the middle of a start is worse than waiting: a daemon with many containers on a slow disk then
begins all over again. So progress counts: processor time, bytes read and written, and containerd's word of being not
ready yet. A daemon started anew by others after its death makes no progress by that.
"""

from collections.abc import Iterable
from typing import Final

from nodeagent.model.runtime import DaemonProcess

_MARGIN: Final = 2.0
"""How many times as long as at its last start a runtime may take."""
_MOST: Final = 10.0
"""How many times the setting a start may take at most while it makes progress."""
_BUSY_SHARE: Final = 0.02
"""Of a processor; a daemon that only waits uses less."""
_TICK_SECONDS: Final = 0.02
"""The precision of the kernel's start times of processes."""
_NOT_YET: Final = "server is not initialized yet"
"""The answer of containerd's CRI while it reads its containers (in its package `instrument`)."""
_FIRST_PAUSE_SECONDS: Final = 60.0
_LAST_PAUSE_SECONDS: Final = 3600.0


class Patience:
    """Whether to wait longer for one restart."""

    def __init__(self, timeout_seconds: float, took_seconds: float, now: float) -> None:
        """Begin to wait: `timeout_seconds` without any progress are allowed by the settings.

        `took_seconds` is the time of the daemon's last start on this node, zero where unknown.
        """
        self._limit = max(timeout_seconds, _MARGIN * took_seconds)
        self._began = self._progressed = now
        self._end = now + max(self._limit, _MOST * timeout_seconds)
        self._daemon: DaemonProcess | None = None

    def note_processes(self, processes: Iterable[DaemonProcess], now: float) -> None:
        """Note the progress of the program's processes by now; processes from before the restart do not count."""
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
        """Note the error of a silent runtime."""
        if _NOT_YET in reason:
            self._progressed = now

    def is_over(self, now: float) -> bool:
        """Whether the time is up."""
        return now >= min(self._progressed + self._limit, self._end)

    def waited_seconds(self, now: float) -> float:
        """For how long by now."""
        return now - self._began


class Pause:
    """The time of the next restart: restarts in a row because of changes by others wait ever longer."""

    def __init__(self) -> None:
        self._count = 0
        self._last = 0.0

    def note_restart(self, now: float) -> None:
        """Note a restart of the runtime just now."""
        self._count = 1 if now >= self._last + _LAST_PAUSE_SECONDS else self._count + 1
        self._last = now

    def forget(self) -> None:
        """A person has changed the settings, and waits for the result."""
        self._count = 0

    def left_seconds(self, now: float) -> float:
        """How long no restart may be; zero when a restart may be now."""
        if not self._count:
            return 0.0
        pause = min(_FIRST_PAUSE_SECONDS * 2.0 ** (self._count - 1), _LAST_PAUSE_SECONDS)
        return max(0.0, self._last + pause - now)
