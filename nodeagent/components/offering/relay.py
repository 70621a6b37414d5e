"""The way to whoever looks after the doors now: the part is built anew after each crash, those who ask are not."""

from collections.abc import Iterator
from contextlib import contextmanager

from nodeagent.model.errors import ControlRefused
from nodeagent.model.offering import Door
from nodeagent.model.ports import DoorChoosing


class ChoosingRelay:
    """Implements `model.ports.DoorChoosing` for as long as the process lives."""

    def __init__(self) -> None:
        self._keeper: DoorChoosing | None = None

    @contextmanager
    def lead_to(self, keeper: DoorChoosing) -> Iterator[None]:
        """Lead to this keeper for as long as the block lasts."""
        self._keeper = keeper
        try:
            yield
        finally:
            self._keeper = None

    async def set_door(self, name: str, door: Door | None, who: str) -> str:
        """Have a GPU go through this door from now on, on a person's word.

        Raises:
            ControlRefused: no such GPU, or nobody looks after the doors at the moment.
        """
        if self._keeper is None:
            raise ControlRefused("the doors are not known yet, or their part has failed: see `nodeagent status`")
        return await self._keeper.set_door(name, door, who)
