"""Cost and failures of driver calls, over all workers since the agent's start."""

from nodeagent.core.children.child_process import ChildStatistics
from nodeagent.edge.nvml.agent.protocol import SampleAnswer
from nodeagent.model.telemetry import CallFailures, CallTime, DriverAccess


class UsageTotals:
    """Adds up the reports of successive workers."""

    def __init__(self) -> None:
        self._spent: dict[str, tuple[int, float]] = {}
        self._failures: dict[tuple[str, int], int] = {}
        self._access = DriverAccess()

    def note(self, answer: SampleAnswer) -> None:
        """Take the counts of an answer, if any."""
        if not answer.spent:
            return
        for function, calls, seconds in answer.spent:
            known_calls, known_seconds = self._spent.get(function, (0, 0.0))
            self._spent[function] = known_calls + calls, known_seconds + seconds
        for function, code, count in answer.failures:
            self._failures[function, code] = self._failures.get((function, code), 0) + count
        self._access = DriverAccess(
            calls=tuple(
                CallTime(function=function, count=count, seconds=seconds)
                for function, (count, seconds) in sorted(self._spent.items())
            ),
            failures=tuple(
                CallFailures(function=function, code=code, count=count)
                for (function, code), count in sorted(self._failures.items())
            ),
        )

    def render(self, worker: ChildStatistics) -> DriverAccess:
        """All counts, with the statistics of the workers."""
        access = self._access
        if (worker.starts, worker.stuck, worker.died, worker.left_behind) != (
            access.worker_starts,
            access.worker_stuck,
            access.worker_died,
            access.left_behind,
        ):
            access = self._access = DriverAccess(
                calls=access.calls,
                failures=access.failures,
                worker_starts=worker.starts,
                worker_stuck=worker.stuck,
                worker_died=worker.died,
                left_behind=worker.left_behind,
            )
        return access
