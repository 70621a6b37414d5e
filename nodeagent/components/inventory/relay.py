"""A handle to the running inventory component, which is built anew after each crash."""

from collections.abc import Iterator
from contextlib import contextmanager

from nodeagent.model.errors import ControlRefused
from nodeagent.model.ports import GpuForgetting


class ForgettingRelay:
    """Implements `model.ports.GpuForgetting` for as long as the process lives."""

    def __init__(self) -> None:
        self._keeper: GpuForgetting | None = None

    @contextmanager
    def lead_to(self, keeper: GpuForgetting) -> Iterator[None]:
        """Pass calls to this component for as long as the block lasts."""
        self._keeper = keeper
        try:
            yield
        finally:
            self._keeper = None

    async def forget_gpu(self, name: str, who: str) -> str:
        """No longer miss a GPU, on a person's word.

        Raises:
            ControlRefused: no such GPU is missed, or nobody keeps the inventory at the moment.
        """
        if self._keeper is None:
            raise ControlRefused("the GPUs are not known yet: the driver is not ready, or the inventory has failed")
        return await self._keeper.forget_gpu(name, who)
