"""The driver's recent reports of each GPU, and the replacements of the GPU worker.

Owns the rule that reports of one GPU in one burst follow from the first report: an XID, then the driver's consequences.
Refuses a long memory: an old report that a scan has followed explains no new change. One replacement of the worker is
normal; several in a row are a driver that fails, although each answer in between looks well.
"""

from collections import deque
from typing import Final, NamedTuple

from nodeagent.model.telemetry import DriverAccess

BURST_SECONDS = 5.0


class _Burst(NamedTuple):
    first: int
    newest: int
    began_at: float


class Reports:
    """The last burst of each GPU, by the sequence numbers of the published reports."""

    def __init__(self) -> None:
        self._bursts: dict[str, _Burst] = {}

    def find_cause(self, gpu: str, now: float) -> int | None:
        """The cause of a report at this time."""
        burst = self._bursts.get(gpu)
        return burst.first if burst is not None and now - burst.began_at <= BURST_SECONDS else None

    def note(self, gpu: str, report: int, now: float) -> None:
        """Remember a published report."""
        burst = self._bursts.get(gpu)
        if burst is None or now - burst.began_at > BURST_SECONDS:
            burst = _Burst(report, report, now)
        self._bursts[gpu] = burst._replace(newest=report)

    def newest(self) -> dict[str, int]:
        """By GPU, the report that is the cause of changes in the next scan."""
        return {gpu: burst.newest for gpu, burst in self._bursts.items()}

    def forget_old(self, now: float) -> None:
        """Drop reports past their burst, after a scan."""
        self._bursts = {gpu: burst for gpu, burst in self._bursts.items() if now - burst.began_at <= BURST_SECONDS}


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
