"""Whether the GPU worker is replaced again and again; pure.

Owns the window. One replacement is normal: a call that hung, a library that crashed. Several in a row are a driver that
fails, although each answer in between looks well.
"""

from collections import deque
from typing import Final

from nodeagent.model.telemetry import DriverAccess

WINDOW_SECONDS: Final = 600.0
RESTARTS_MAX: Final = 3


class WorkerRestarts:
    """The replacements of the last minutes."""

    def __init__(self) -> None:
        self._counted: int | None = None
        self._times: deque[float] = deque(maxlen=RESTARTS_MAX)

    def judge(self, access: DriverAccess | None, now: float) -> str:
        """The trouble in words; empty without trouble, or without a worker."""
        count = access.worker_died + access.worker_stuck if access is not None else 0
        # What was before the first look is history: the agent has taken over from another part of itself.
        fresh = 0 if self._counted is None else max(0, count - self._counted)
        self._counted = count
        self._times.extend([now] * min(fresh, RESTARTS_MAX))
        while self._times and now - self._times[0] > WINDOW_SECONDS:
            self._times.popleft()
        if access is None or len(self._times) < RESTARTS_MAX:
            return ""
        return f"replaced {access.worker_died} times because it ended, {access.worker_stuck} times because it hung"
