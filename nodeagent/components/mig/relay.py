"""Handle for the current MIG component: the component is built anew after each crash, its clients are not."""

from collections.abc import Iterator
from contextlib import contextmanager

from nodeagent.model.errors import ControlRefused
from nodeagent.model.ports import LayoutApplying

NOBODY = (
    "this agent does not cut GPUs: set mig.manage to true; where it is, the part has yet to start or has failed, see"
    " `nodeagent status`"
)


class ApplyingRelay:
    """Implements `model.ports.LayoutApplying` for as long as the process lives."""

    def __init__(self) -> None:
        self._keeper: LayoutApplying | None = None

    @contextmanager
    def lead_to(self, keeper: LayoutApplying) -> Iterator[None]:
        """Forward layout requests to this component for as long as the block lasts."""
        self._keeper = keeper
        try:
            yield
        finally:
            self._keeper = None

    async def apply_layout(self, name: str, who: str) -> str:
        """Have the GPUs cut as a layout says, on a person's word.

        Raises:
            ControlRefused: The layout is not feasible, or no component cuts GPUs at the moment.
        """
        if self._keeper is None:
            raise ControlRefused(NOBODY)
        return await self._keeper.apply_layout(name, who)
