"""A handle to the running offering component, which is built anew after each crash."""

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
        """Pass calls to this component for as long as the block lasts."""
        self._keeper = keeper
        try:
            yield
        finally:
            self._keeper = None

    async def set_door(self, name: str, door: Door | None, who: str) -> str:
        """Change a GPU's allocation mode, on a person's word.

        Raises:
            ControlRefused: No such GPU, or no running offering component.
        """
        if self._keeper is None:
            raise ControlRefused("the doors are not known yet, or their part has failed: see `nodeagent status`")
        return await self._keeper.set_door(name, door, who)
