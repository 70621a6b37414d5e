"""Handles for the current MIG component: the component is built anew after each crash, its clients are not."""

from collections.abc import Iterator, Mapping
from contextlib import contextmanager

from nodeagent.model.errors import ControlRefused
from nodeagent.model.gpu import MigDevice
from nodeagent.model.mig import PartitionWish
from nodeagent.model.ports import LayoutApplying, PartitionMaking

_NOBODY = (
    "this agent does not cut GPUs: set mig.manage to true; where it is, the part has yet to start or has failed, see"
    " `nodeagent status`"
)


class ApplyingRelay:
    """Implements `model.ports.LayoutApplying` and `PartitionMaking` for as long as the process lives."""

    def __init__(self) -> None:
        self._keeper: LayoutApplying | None = None
        self._maker: PartitionMaking | None = None

    @contextmanager
    def lead_to(self, keeper: LayoutApplying) -> Iterator[None]:
        """Forward layout requests to this component for as long as the block lasts."""
        self._keeper = keeper
        try:
            yield
        finally:
            self._keeper = None

    @contextmanager
    def make_with(self, maker: PartitionMaking) -> Iterator[None]:
        """Forward requests for single devices to this maker for as long as the block lasts."""
        self._maker = maker
        try:
            yield
        finally:
            self._maker = None

    async def apply_layout(self, name: str, who: str) -> str:
        """Have the GPUs cut as a layout says, on a person's word.

        Raises:
            ControlRefused: The layout is not feasible, or no component cuts GPUs at the moment.
        """
        if self._keeper is None:
            raise ControlRefused(_NOBODY)
        return await self._keeper.apply_layout(name, who)

    async def make_partition(self, key: str, wish: PartitionWish) -> MigDevice:
        """The MIG device of a key from now on.

        Raises:
            NodeagentError: There is no device; no component cuts GPUs at the moment, or as the port says.
        """
        return await self._reach().make_partition(key, wish)

    async def remove_partition(self, key: str) -> None:
        """Remove the device of a key.

        Raises:
            NodeagentError: The device is still there; no component cuts GPUs at the moment, or as the port says.
        """
        await self._reach().remove_partition(key)

    def partitions(self) -> Mapping[str, PartitionWish] | None:
        """The wanted device of each key; `None` while unknown."""
        return self._maker.partitions() if self._maker is not None else None

    def _reach(self) -> PartitionMaking:
        if self._maker is None:
            raise ControlRefused(_NOBODY)
        return self._maker
