"""Reports of the supervisor and of a component about the component's life, as states on the bus.

Owns the two records. Refuses to decide anything.
"""

from enum import StrEnum, unique

from msgspec import Struct


@unique
class Phase(StrEnum):
    """The phase of a component: waiting → starting → running ⇄ degraded → backing_off → failed | stopped."""

    WAITING = "waiting"
    STARTING = "starting"
    RUNNING = "running"
    DEGRADED = "degraded"
    BACKING_OFF = "backing_off"
    FAILED = "failed"
    STOPPING = "stopping"
    STOPPED = "stopped"


class Degraded(Struct, frozen=True):
    """State, keyed by component name: the component runs with reduced service, with the reason in one line.

    A component publishes `Degraded` about itself and retracts the state once recovered:
    `bus.publish_state(Degraded("…"), source=self.name, key=self.name)`, `bus.retract_state(Degraded, self.name)`.
    The supervisor shows the phase `degraded`, and retracts the state when the component ends.
    """

    reason: str


class ComponentReport(Struct, frozen=True):
    """State, keyed by component name: the supervisor's report on one component."""

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
    """The closed gates of a waiting component."""
