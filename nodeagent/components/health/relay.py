"""The way to whoever judges health now: the part is built anew after each crash, those who ask for it are not."""

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
        """Lead to this judge for as long as the block lasts."""
        self._judge = judge
        try:
            yield
        finally:
            self._judge = None

    async def clear_gpu(self, name: str, reason: str, who: str) -> str:
        """Take a GPU back into service on a person's word.

        Raises:
            ControlRefused: no such GPU, or nobody judges health at the moment.
        """
        if self._judge is None:
            raise ControlRefused("health is not judged yet, or its part has failed: see `nodeagent status`")
        return await self._judge.clear_gpu(name, reason, who)
