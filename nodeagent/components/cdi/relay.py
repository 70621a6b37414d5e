"""The way to whoever keeps the specifications now: the part is built anew after each crash, those who ask are not."""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager

from nodeagent.model.errors import NodeagentError
from nodeagent.model.ids import GpuUuid
from nodeagent.model.plugin import ContainerMount
from nodeagent.model.ports import PartSpecs


class SpecsUnavailable(NodeagentError):
    """Nobody keeps the specifications at the moment."""

    def __init__(self) -> None:
        super().__init__("CDI specifications cannot be written yet: the driver is not ready, or their part has failed")


class PartSpecsRelay:
    """Implements `model.ports.PartSpecs` for as long as the process lives."""

    def __init__(self) -> None:
        self._keeper: PartSpecs | None = None

    @contextmanager
    def lead_to(self, keeper: PartSpecs) -> Iterator[None]:
        """Lead to this keeper for as long as the block lasts."""
        self._keeper = keeper
        try:
            yield
        finally:
            self._keeper = None

    async def write_part(
        self, names: tuple[str, ...], gpus: Sequence[GpuUuid], mounts: Sequence[ContainerMount]
    ) -> None:
        """Have names mean these GPUs; the port's contract is in `model.ports`."""
        await self._find_keeper().write_part(names, gpus, mounts)

    async def remove_part(self, name: str) -> None:
        """Have them mean nothing; the port's contract is in `model.ports`."""
        await self._find_keeper().remove_part(name)

    def _find_keeper(self) -> PartSpecs:
        if self._keeper is None:
            raise SpecsUnavailable
        return self._keeper
