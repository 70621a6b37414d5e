"""A handle to the running health component, which is built anew after each crash."""

from collections.abc import Iterator
from contextlib import contextmanager

from nodeagent.model.errors import ControlRefused
from nodeagent.model.ports import GpuClearing


class ClearingRelay:
    """Implements `model.ports.GpuClearing` for as long as the process lives."""

    def __init__(self) -> None:
        self._judge: GpuClearing | None = None

    @contextmanager
    def lead_to(self, judge: GpuClearing) -> Iterator[None]:
        """Pass calls to this component for as long as the block lasts."""
        self._judge = judge
        try:
            yield
        finally:
            self._judge = None

    async def clear_gpu(self, name: str, reason: str, who: str) -> str:
        """Take a GPU back into service on a person's word.

        Raises:
            ControlRefused: No such GPU, or no running health component.
        """
        if self._judge is None:
            raise ControlRefused("health is not judged yet, or its part has failed: see `nodeagent status`")
        return await self._judge.clear_gpu(name, reason, who)
