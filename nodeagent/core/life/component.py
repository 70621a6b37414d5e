"""What a component is to the supervisor: something that runs until told to stop, and a record of how to treat it.

Owns the protocol and the record. Refuses to know any component.
"""

from collections.abc import Callable
from typing import Protocol

from anyio.abc import TaskStatus
from msgspec import Struct


class Component(Protocol):
    """One part of the agent: one job, one task, as many helper tasks inside its own task group as it likes.

    `run` calls `task_status.started()` once it does its job, and again never needs to (more calls change nothing).
    It runs until it is cancelled, which is how it is told to stop; clean-up that awaits is shielded and timed.
    Returning without being told to counts as a crash, like any exception.
    A component that works less well than it should publishes `Degraded` (see `report.py`).
    """

    name: str

    async def run(self, *, task_status: TaskStatus[None]) -> None:
        """Do the job until cancelled."""
        ...


class ComponentSpec(Struct, frozen=True):
    """How the supervisor starts, restarts and stops one component."""

    name: str

    build: Callable[[], Component]
    """Makes a fresh component for each start, so that nothing survives a crash by accident."""

    needs: tuple[str, ...] = ()
    """Gates that must be open before it starts; one that closes later stops nothing."""

    opens: tuple[str, ...] = ()
    """Gates that open when it says that it has started, and close when it ends."""

    opens_itself: tuple[str, ...] = ()
    """Gates that it opens by its own hand, when what it looks after is good enough; they stay as it left them."""

    vital: bool = False
    """Past its crash budget a vital component ends the process; any other is given up and the rest goes on."""

    stop_stage: int = 0
    """Stages stop in rising order; those of one stage together, the last started first."""

    stop_timeout_seconds: float = 3.0
    """How long the stop of its stage waits for it."""
