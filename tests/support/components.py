"""Components for tests of the supervisor: each does one thing and writes down what happened to it."""

from collections.abc import Callable
from dataclasses import dataclass, field

import anyio
from anyio.abc import TaskStatus

from nodeagent.core.life.supervisor import COMPONENT_FAILED
from nodeagent.core.values import Severity


@dataclass
class Diary:
    """What happened, in order, over all components of a test."""

    lines: list[tuple[float, str, str]] = field(default_factory=list)

    def write(self, name: str, what: str) -> None:
        self.lines.append((anyio.current_time(), name, what))

    def of(self, what: str) -> list[str]:
        """Names to which this happened, in order."""
        return [name for _time, name, happened in self.lines if happened == what]

    def times(self, name: str, what: str) -> list[float]:
        return [time for time, who, happened in self.lines if (who, happened) == (name, what)]


@dataclass(frozen=True)
class ComponentFailed:
    """The condition that a supervisor sets."""

    code: str = COMPONENT_FAILED
    severity: Severity = "error"
    title: str = "a component is down"
    remedy: str = "read the log"
    show_after_seconds: float = 0
    depends_on: tuple[str, ...] = ()


class Steady:
    """Starts after a while, runs until cancelled, takes its time to stop; crashes as often as it is told to."""

    def __init__(
        self,
        name: str,
        diary: Diary,
        *,
        starts_after: float = 0,
        crashes: list[Exception] | None = None,
        crashes_after: float = 0,
        stops_after: float = 0,
        on_stop: Callable[[], None] = lambda: None,
    ) -> None:
        self.name = name
        self._diary = diary
        self._starts_after, self._crashes_after, self._stops_after = starts_after, crashes_after, stops_after
        self._crashes = crashes if crashes is not None else []
        self._on_stop = on_stop

    async def run(self, *, task_status: TaskStatus[None]) -> None:
        self._diary.write(self.name, "begun")
        try:
            await anyio.sleep(self._starts_after)
            task_status.started()
            self._diary.write(self.name, "started")
            if self._crashes:
                await anyio.sleep(self._crashes_after)
                raise self._crashes.pop(0)
            await anyio.sleep_forever()
        except anyio.get_cancelled_exc_class():
            self._diary.write(self.name, "cancelled")
            with anyio.CancelScope(shield=True):
                await anyio.sleep(self._stops_after)
            self._on_stop()
            raise
        finally:
            self._diary.write(self.name, "ended")
