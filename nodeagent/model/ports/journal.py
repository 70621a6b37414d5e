"""What parts ask of the journal beside the kubelet's own questions."""

from collections.abc import Mapping
from typing import Protocol

from nodeagent.model.ids import GpuUuid
from nodeagent.model.journal import Change, Step
from nodeagent.model.offering import Door


class GpuDoorKeeper(Protocol):
    """Remembers the doors that a person has set; told to everybody as `ChosenDoors`."""

    async def set_door(self, gpu: GpuUuid, door: Door | None) -> None:
        """Make the choice of a door durable; `None` leaves it to the configuration again.

        Raises:
            JournalUnavailable: it could not be made durable, and all is as before.
        """
        ...

    def doors(self) -> Mapping[GpuUuid, Door] | None:
        """The doors that are set; `None` while nobody knows, which is not the same as no door."""
        ...


class ChangeKeeper(Protocol):
    """Keeps what is written of changes of GPUs in several steps, each before it is taken."""

    async def begin_change(self, owner: str, gpu: GpuUuid, step: Step) -> int:
        """Write down that a change begins; answers with its number.

        Raises:
            JournalUnavailable: it could not be made durable, and must not begin.
        """
        ...

    async def step_change(self, number: int, step: Step) -> None:
        """Write down the next step.

        Raises:
            JournalUnavailable: it could not be made durable, and must not be taken.
        """
        ...

    async def settle_change(self, number: int, outcome: str) -> None:
        """Write down that a change is over.

        Raises:
            JournalUnavailable: it could not be made durable; it is found again after a restart.
        """
        ...

    def changes(self, owner: str) -> tuple[Change, ...] | None:
        """Those of this part that are under way; `None` while nobody knows."""
        ...
