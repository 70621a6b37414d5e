"""The handle to the cdi component: outlives the component, which is built anew after each crash."""

from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Protocol

from nodeagent.model.errors import NodeagentError
from nodeagent.model.ids import GpuUuid
from nodeagent.model.plugin import ContainerMount
from nodeagent.model.ports import ClaimedSpec, ClaimSpecs, PartSpecs


class SpecsUnavailable(NodeagentError):
    """CDI specifications cannot be written at the moment."""

    def __init__(self) -> None:
        super().__init__("CDI specifications cannot be written yet: the driver is not ready, or their part has failed")


class SpecsKeeper(PartSpecs, ClaimSpecs, Protocol):
    """The component behind the handle."""


class PartSpecsRelay:
    """The handle; implements `model.ports.PartSpecs` and `ClaimSpecs` for as long as the process lives."""

    def __init__(self) -> None:
        self._keeper: SpecsKeeper | None = None

    @contextmanager
    def lead_to(self, keeper: SpecsKeeper) -> Iterator[None]:
        """Point the handle at the component for as long as the block lasts."""
        self._keeper = keeper
        try:
            yield
        finally:
            self._keeper = None

    async def write_part(
        self,
        names: tuple[str, ...],
        gpus: Sequence[GpuUuid],
        mounts: Sequence[ContainerMount],
        environment: Mapping[str, str],
    ) -> None:
        """Give names the GPUs; the port's contract is in `model.ports`."""
        await self._find_keeper().write_part(names, gpus, mounts, environment)

    async def remove_part(self, name: str) -> None:
        """Remove a container's names; the port's contract is in `model.ports`."""
        await self._find_keeper().remove_part(name)

    async def write_claim(self, uid: str, devices: Sequence[ClaimedSpec]) -> None:
        """Give names the devices of a claim; the port's contract is in `model.ports`."""
        await self._find_keeper().write_claim(uid, devices)

    async def remove_claim(self, uid: str) -> None:
        """Remove a claim's names; the port's contract is in `model.ports`.

        Without the component the file stays until `keep_claims`: a pod must be able to end without a driver.
        """
        if self._keeper is not None:
            await self._keeper.remove_claim(uid)

    async def keep_claims(self, uids: Collection[str]) -> None:
        """Remove the names of all other claims; the port's contract is in `model.ports`."""
        await self._find_keeper().keep_claims(uids)

    def _find_keeper(self) -> SpecsKeeper:
        if self._keeper is None:
            raise SpecsUnavailable
        return self._keeper
