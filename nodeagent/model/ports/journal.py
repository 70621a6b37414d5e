"""What parts ask of the journal beside the kubelet's own questions."""

from collections.abc import Mapping
from typing import Protocol

from nodeagent.model.ids import GpuUuid
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
