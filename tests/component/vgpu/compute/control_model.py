"""The law of the compute limit, and a device that is shared in time, as a model: no clock, no driver, no processes.

The law is the one of `native/vgpu/compute/control.h`, written a second time; a test holds both equal. The device gives
each tenant that has work the same part of each step. What it is measured to do comes late, as from a real one.
"""

from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Final

ONE: Final = 65536
LEAST: Final = ONE // 16
WHOLE: Final = 10_000
STILL: Final = 100
BUSY: Final = 9_500
STEP_MS: Final = 1.0
BURST_MS: Final = 20.0
LAUNCHES: Final = 2
SURE_MS: Final = 1000.0
WINDOW_MS: Final = 100.0
QUEUE_MOST: Final = 1024
"""Launches that a device takes before the next one waits for it."""


def next_factor(factor: int, limit: int, own: int, total: int, *, waited: bool, soft: bool, sure: bool) -> int:
    """What the limit is multiplied by after a measurement."""
    wanted, most, after = limit * (WHOLE // 100), ONE * 3 * 100 // limit, factor
    if soft and (total < BUSY or total <= own + STILL):
        if waited:
            after += factor // 8 + ONE // 16
    elif own > wanted + STILL:
        after -= factor * (own - wanted) // own // (2 if sure else 4)
    elif own + STILL < wanted and waited and not sure:
        after += ONE * (wanted - own) // wanted // 4
    elif own + STILL < wanted and waited:
        after += factor * (wanted - own) // own // 2 if 3 * own > wanted else factor
    return max(LEAST, min(most, after))


@dataclass(slots=True)
class Tenant:
    """One container: it always has more to launch, unless it is said to be idle."""

    limit: int | None
    kernel_ms: float
    soft: bool = False
    idle: bool = False
    factor: int = ONE
    due_ms: float = 0.0
    estimate_ms: float = 0.0
    backlog_ms: float = 0.0
    waited: bool = False
    longest_ms: float = 0.0
    since_ms: float = 0.0
    gathered: list[tuple[int, int]] = field(default_factory=list)
    done_ms: list[float] = field(default_factory=list)
    """What it got of each step."""

    def launch(self, now_ms: float, slowdown: float) -> None:
        """As much as the law and the queue let it; a kernel is thought to cost what it took, others' time included."""
        if self.idle:
            return
        room = max(0, min(QUEUE_MOST, int((2 * STEP_MS + 8 * self.kernel_ms - self.backlog_ms) / self.kernel_ms)))
        took = self.kernel_ms * slowdown
        self.estimate_ms += (took - self.estimate_ms) / 4 if self.estimate_ms else took
        if self.limit is None:
            self.backlog_ms += room * self.kernel_ms
            return
        charge = self.estimate_ms * 100 * ONE / (self.limit * self.factor)
        self.due_ms = max(self.due_ms, now_ms - BURST_MS)
        may = 0 if self.due_ms > now_ms else int((now_ms - self.due_ms) / charge) + 1
        self.waited = self.waited or may < room
        launched = min(room, may)
        for _ in range(min(launched, 16)):
            self.longest_ms = max(charge, self.longest_ms - self.longest_ms / 16)
        self.backlog_ms += launched * self.kernel_ms
        self.due_ms += launched * charge

    def conclude(self, now_ms: float, own: int, total: int) -> None:
        """Take note of a measurement; what they say together counts once they cover some launches."""
        self.gathered.append((own, total))
        if self.limit is None or now_ms - self.since_ms < LAUNCHES * self.longest_ms:
            return
        mean_own, mean_total = (sum(each) // len(self.gathered) for each in zip(*self.gathered, strict=True))
        sure = now_ms - self.since_ms >= SURE_MS
        self.factor = next_factor(
            self.factor, self.limit, mean_own, mean_total, waited=self.waited, soft=self.soft, sure=sure
        )
        self.since_ms, self.waited = now_ms, False
        self.gathered.clear()


@dataclass(slots=True)
class Device:
    """Shared by all its tenants, a step at a time."""

    tenants: Sequence[Tenant]
    lag_ms: float
    window_ms: float = WINDOW_MS
    late: deque[tuple[float, tuple[int, ...]]] = field(default_factory=deque)

    def run(self, milliseconds: float) -> None:
        for step in range(int(milliseconds / STEP_MS)):
            now = step * STEP_MS
            busy = sum(tenant.backlog_ms > 0 for tenant in self.tenants)
            for tenant in self.tenants:
                tenant.launch(now, max(1, busy))
            self._work()
            if now and now % self.window_ms == 0:
                self._measure(now)

    def _work(self) -> None:
        """The same part for each that has something to do; what one leaves the others take."""
        left, got = STEP_MS, {id(tenant): 0.0 for tenant in self.tenants}
        while left > 1e-9 and (waiting := [tenant for tenant in self.tenants if tenant.backlog_ms > 1e-9]):
            part = left / len(waiting)
            for tenant in waiting:
                taken = min(part, tenant.backlog_ms)
                tenant.backlog_ms -= taken
                got[id(tenant)] += taken
                left -= taken
        for tenant in self.tenants:
            tenant.done_ms.append(got[id(tenant)])

    def _measure(self, now: float) -> None:
        window = int(self.window_ms / STEP_MS)
        parts = tuple(int(sum(tenant.done_ms[-window:]) / self.window_ms * WHOLE) for tenant in self.tenants)
        self.late.append((now + self.lag_ms, parts))
        while self.late and self.late[0][0] <= now:
            measured = self.late.popleft()[1]
            for tenant, own in zip(self.tenants, measured, strict=True):
                tenant.conclude(now, min(own, WHOLE), min(sum(measured), WHOLE))
