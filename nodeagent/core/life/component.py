"""A component as the supervisor sees one: a task that runs until cancelled, and the specification of its treatment.

Owns the protocol and the specification. Refuses to know any component.
"""

from collections.abc import Callable
from typing import Protocol

from anyio.abc import TaskStatus
from msgspec import Struct


class Component(Protocol):
    """A component of the agent: one job, one task, any number of helper tasks inside its own task group.

    `run` calls `task_status.started()` once the job is being done (further calls change nothing).
    `run` goes on until cancelled, the order to stop; clean-up with awaits is shielded and timed.
    Returning without cancellation counts as a crash, like any exception.
    A component with reduced service publishes `Degraded` (see `report.py`).
    """

    name: str

    async def run(self, *, task_status: TaskStatus[None]) -> None:
        """Do the job until cancelled."""
        ...


class ComponentSpec(Struct, frozen=True):
    """How the supervisor starts, restarts and stops one component."""

    name: str

    build: Callable[[], Component]
    """Makes a fresh component for each start, so that no state survives a crash by accident."""

    needs: tuple[str, ...] = ()
    """Gates that must be open before the start; a gate closing later stops nothing."""

    opens: tuple[str, ...] = ()
    """Gates opened when the component reports its start, and closed at its end."""

    opens_itself: tuple[str, ...] = ()
    """Gates opened by the component itself, once its subject is ready; the supervisor never closes them."""

    vital: bool = False
    """Past the crash budget a vital component ends the process; any other component is given up alone."""

    stop_stage: int = 0
    """Stages stop in rising order; components of one stage together, the last started first."""

    stop_timeout_seconds: float = 3.0
    """How long the stop of the stage waits for the component."""
