"""What holds the containers of a claim to their shares of GPUs: the files and the library of parts of GPUs.

All containers that have the claim have its share together: what one of them uses, the others have less.
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
from nodeagent.rules.fractions.mounts import plan_part_mounts


class ShareKeeper(Protocol):
    """Writes the limits of shares where containers find them."""

    async def open_share(self, claim: PreparedClaim, inventory: Inventory) -> tuple[ContainerMount, ...]:
        """Have the limits of a claim stand somewhere; what its containers must see of it.

        Raises:
            NodeagentError: they cannot be written.
        """
        ...

    async def close_share(self, claim: PreparedClaim) -> None:
        """Take them away; fine where there are none.

        Raises:
            NodeagentError: they cannot be removed.
        """
        ...


class ShareFiles:
    """Implements `ShareKeeper` by a folder for each claim."""

    def __init__(self, live: LiveSettings, folders: PartFolders, library: PartLibrary) -> None:
        self._live, self._folders, self._library = live, folders, library

    async def open_share(self, claim: PreparedClaim, inventory: Inventory) -> tuple[ContainerMount, ...]:
        """Write the folder, and install what reads it where that is wanted."""
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
    """What the containers of a claim are held to on each GPU; all shares of one GPU are one."""
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
