"""What the supervisor and a component say about the component's life, as states on the bus.

Owns the two records. Refuses to decide anything.
"""

from enum import StrEnum, unique

from msgspec import Struct


@unique
class Phase(StrEnum):
    """Where a component is in its life: waiting → starting → running ⇄ degraded → backing_off → failed | stopped."""

    WAITING = "waiting"
    STARTING = "starting"
    RUNNING = "running"
    DEGRADED = "degraded"
    BACKING_OFF = "backing_off"
    FAILED = "failed"
    STOPPING = "stopping"
    STOPPED = "stopped"


class Degraded(Struct, frozen=True):
    """State, keyed by component name: it runs, but does less than its job, in one line why.

    A component publishes this about itself and retracts it when it is well again:
    `bus.publish_state(Degraded("…"), source=self.name, key=self.name)`, `bus.retract_state(Degraded, self.name)`.
    The supervisor shows it as the phase `degraded`, and retracts it when the component ends.
    """

    reason: str


class ComponentReport(Struct, frozen=True):
    """State, keyed by component name: the supervisor's word on one component."""

    name: str
    phase: Phase
    since: float
    """Unix seconds of the last change of phase."""
    vital: bool
    restarts: int
    last_error: str | None
    """The last crash in one line; kept after a recovery."""
    degraded_reason: str | None
    waiting_for: tuple[str, ...]
    """Gates that are still closed, while it waits."""
