"""Limits for the containers of a claim with fractions of GPUs: limits files and the vGPU library.

All containers of the claim use its fraction together: the use of one container leaves less for the others.
"""

from collections.abc import Mapping
from typing import Protocol

from nodeagent.components.claims.prepare import ALL_CORES
from nodeagent.config.live import LiveSettings
from nodeagent.model.gpu import Inventory
from nodeagent.model.ids import GpuUuid
from nodeagent.model.journal import GpuPart, PreparedClaim
from nodeagent.model.parts import PartLimit
from nodeagent.model.plugin import ContainerMount
from nodeagent.model.ports import PartFolders, PartLibrary
from nodeagent.rules.fractions.runtime import plan_part_mounts


class ShareKeeper(Protocol):
    """Writes the limits of claims' fractions where containers find the files."""

    async def open_share(self, claim: PreparedClaim, inventory: Inventory) -> tuple[ContainerMount, ...]:
        """Write the limits of a claim; returns the mounts for its containers.

        Raises:
            NodeagentError: The limits cannot be written.
        """
        ...

    async def close_share(self, claim: PreparedClaim) -> None:
        """Remove the limits of a claim, if there are any.

        Raises:
            NodeagentError: The limits cannot be removed.
        """
        ...


class ShareFiles:
    """Implements `ShareKeeper` by a folder for each claim."""

    def __init__(self, live: LiveSettings, folders: PartFolders, library: PartLibrary) -> None:
        self._live, self._folders, self._library = live, folders, library

    async def open_share(self, claim: PreparedClaim, inventory: Inventory) -> tuple[ContainerMount, ...]:
        """Write the folder, and install the vGPU library if the configuration enforces by library."""
        fractions = self._live.now.fractions
        limits = plan_share_limits(claim, inventory, compute=fractions.limit_compute)
        folder = await self._folders.write(claim.uid, limits)
        library = await self._library.install() if fractions.enforcement == "library" else None
        return plan_part_mounts(folder, library)

    async def close_share(self, claim: PreparedClaim) -> None:
        """Remove the folder."""
        if any(device.part is not None for device in claim.devices):
            await self._folders.remove(claim.uid)


def plan_share_limits(claim: PreparedClaim, inventory: Inventory, *, compute: bool) -> tuple[PartLimit, ...]:
    """The limits of a claim's containers on each GPU; all fractions of the same GPU add up."""
    parts: dict[GpuUuid, GpuPart] = {}
    for device in claim.devices:
        if device.part is not None:
            before = parts.get(device.gpu, GpuPart(gpu=device.gpu, cores=0, memory_bytes=0))
            parts[device.gpu] = GpuPart(
                gpu=device.gpu,
                cores=before.cores + device.part.cores,
                memory_bytes=before.memory_bytes + device.part.memory_bytes,
            )
    whole = {gpu.uuid: gpu.memory_total_bytes for gpu in inventory.gpus}
    return tuple(_limit(part, whole, compute=compute) for part in parts.values())


def _limit(part: GpuPart, whole: Mapping[GpuUuid, int], *, compute: bool) -> PartLimit:
    is_all = part.memory_bytes >= whole.get(part.gpu, part.memory_bytes + 1)
    cores = part.cores if compute and 0 < part.cores < ALL_CORES else None
    return PartLimit(gpu=part.gpu, memory_bytes=None if is_all else part.memory_bytes, cores=cores, cores_max=cores)
