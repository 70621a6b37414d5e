"""Limits for the containers of a claim with fractions of GPUs: limits files and the vGPU library.

All containers of the claim use its fraction together: the use of one container leaves less for the others.
"""

from collections.abc import Iterator, Mapping

from nodeagent.components.claims.opaque import ALL_CORES, INTERVALS
from nodeagent.config.live import LiveSettings
from nodeagent.model.gpu import Inventory
from nodeagent.model.ids import GpuUuid
from nodeagent.model.journal import GpuPart, PreparedClaim, PreparedDevice, SharingWay
from nodeagent.model.parts import PartLimit
from nodeagent.model.plugin import ContainerMount
from nodeagent.model.ports import GpuPartitioning, PartFolders, PartLibrary
from nodeagent.rules.fractions.runtime import plan_part_mounts


class ShareFiles:
    """The limits of claims' fractions, in a folder for each claim where its containers find the files."""

    def __init__(self, live: LiveSettings, folders: PartFolders, library: PartLibrary) -> None:
        self._live, self._folders, self._library = live, folders, library

    async def open_share(self, claim: PreparedClaim, inventory: Inventory) -> tuple[ContainerMount, ...]:
        """Write the limits of a claim, and install the vGPU library if the configuration enforces by library.

        Raises:
            NodeagentError: The limits cannot be written.
        """
        fractions = self._live.now.fractions
        limits = plan_share_limits(claim, inventory, compute=fractions.limit_compute)
        folder = await self._folders.write(claim.uid, limits)
        library = await self._library.install() if fractions.enforcement == "library" else None
        return plan_part_mounts(folder, library)

    async def close_share(self, claim: PreparedClaim) -> None:
        """Remove the limits of a claim, if there are any.

        Raises:
            NodeagentError: The limits cannot be removed.
        """
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


OWN = INTERVALS.index("Default")
"""The driver's own choice."""


def find_turn(device: PreparedDevice) -> int:
    """The time slice for a device of a claim; the driver's own without a request."""
    sharing = device.sharing
    if sharing is None or sharing.way is not SharingWay.TIME_SLICING:
        return OWN
    return INTERVALS.index(sharing.interval)


def list_turns(claim: PreparedClaim) -> Iterator[tuple[GpuUuid, int]]:
    """The GPUs of a claim with a time slice other than the driver's own."""
    for device in claim.devices:
        number = find_turn(device)
        if number != OWN:
            yield device.gpu, number


class Turns:
    """Sets time slices, and restores the driver's own."""

    def __init__(self, cards: GpuPartitioning) -> None:
        self._cards = cards

    async def begin(self, claim: PreparedClaim, inventory: Inventory) -> None:
        """Set the time slices of a claim's GPUs.

        Raises:
            NodeagentError: The driver refuses, or cannot be asked.
        """
        await self._set(dict(list_turns(claim)), inventory)

    async def end(self, claim: PreparedClaim, inventory: Inventory | None) -> None:
        """Restore the driver's own time slice; a gone or lost GPU comes back with it.

        Raises:
            NodeagentError: The driver refuses, or cannot be asked.
        """
        await self._set(dict.fromkeys(dict(list_turns(claim)), OWN), inventory)

    async def _set(self, numbers: dict[GpuUuid, int], inventory: Inventory | None) -> None:
        gpus = inventory.gpus if inventory is not None else ()
        there = [gpu for gpu in gpus if gpu.uuid in numbers and not gpu.lost]
        if there:
            async with self._cards.begin() as session:
                for gpu in there:
                    await session.set_time_slice(gpu, numbers[gpu.uuid])
