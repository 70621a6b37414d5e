"""Handles for the current MIG component: the component is built anew after each crash, its clients are not."""

from collections.abc import Iterator, Mapping
from contextlib import contextmanager

from nodeagent.model.gpu import MigDevice
from nodeagent.model.mig import PartitionWish
from nodeagent.model.orders import APPLY_LAYOUT
from nodeagent.model.ports import PartitionMaking


class ApplyingRelay:
    """Implements `model.ports.PartitionMaking` for as long as the process lives."""

    def __init__(self) -> None:
        self._maker: PartitionMaking | None = None

    @contextmanager
    def make_with(self, maker: PartitionMaking) -> Iterator[None]:
        """Forward requests for single devices to this maker for as long as the block lasts."""
        self._maker = maker
        try:
            yield
        finally:
            self._maker = None

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
            raise APPLY_LAYOUT.refuse()
        return self._maker
