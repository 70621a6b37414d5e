"""Limits for the containers of a claim with fractions of GPUs: limits files and the vGPU library.

All containers of the claim use its fraction together: the use of one container leaves less for the others.
"""

from collections.abc import Iterator, Mapping, Sequence

from nodeagent.components.claims.opaque import ALL_CORES, INTERVALS
from nodeagent.config.live import LiveSettings
from nodeagent.model.fractions import FractionLimit
from nodeagent.model.gpu import Inventory
from nodeagent.model.ids import GpuUuid
from nodeagent.model.journal import GpuFraction, PreparedClaim, PreparedDevice, SharingWay
from nodeagent.model.plugin import ContainerMount
from nodeagent.model.ports import FractionFolders, GpuPartitioning, VgpuLibrary
from nodeagent.rules.fractions.runtime import plan_fraction_mounts


class LimitsFolders:
    """The limits of claims' fractions, in a folder for each claim where its containers find the files."""

    def __init__(self, live: LiveSettings, folders: FractionFolders, library: VgpuLibrary) -> None:
        self._live, self._folders, self._library = live, folders, library

    async def open_limits(self, claim: PreparedClaim, inventory: Inventory) -> tuple[ContainerMount, ...]:
        """Write the limits of a claim, and install the vGPU library if the configuration enforces by library.

        Raises:
            NodeagentError: The limits cannot be written.
        """
        fractions = self._live.now.fractions
        limits = plan_shared_limits(claim, inventory, compute=fractions.limit_compute)
        folder = await self._folders.write(claim.uid, limits)
        library = await self._library.install() if fractions.enforcement == "library" else None
        return plan_fraction_mounts(folder, library)

    async def close_limits(self, claim: PreparedClaim) -> None:
        """Remove the limits of a claim, if there are any.

        Raises:
            NodeagentError: The limits cannot be removed.
        """
        if any(device.part is not None for device in claim.devices):
            await self._folders.remove(claim.uid)


def plan_shared_limits(claim: PreparedClaim, inventory: Inventory, *, compute: bool) -> tuple[FractionLimit, ...]:
    """The limits of a claim's containers on each GPU; all fractions of the same GPU add up."""
    parts: dict[GpuUuid, list[GpuFraction]] = {}
    for device in claim.devices:
        if device.part is not None:
            parts.setdefault(device.gpu, []).append(device.part)
    whole = {gpu.uuid: gpu.memory_total_bytes for gpu in inventory.gpus}
    return tuple(_limit(gpu, fractions, whole, compute=compute) for gpu, fractions in parts.items())


def _limit(gpu: GpuUuid, parts: Sequence[GpuFraction], whole: Mapping[GpuUuid, int], *, compute: bool) -> FractionLimit:
    memory = sum(part.memory_bytes for part in parts)
    # A share without memory of its own has the memory that others leave.
    is_all = memory >= whole.get(gpu, memory + 1) or not all(part.memory_bytes for part in parts)
    total = sum(part.cores for part in parts)
    cores = total if compute and 0 < total < ALL_CORES else None
    return FractionLimit(gpu=gpu, memory_bytes=None if is_all else memory, cores=cores, cores_max=cores)


OWN = INTERVALS.index("Default")
"""The driver's own choice."""


def find_turn(device: PreparedDevice) -> int:
    """The time slice for a device of a claim; the driver's own without a request."""
    sharing = device.sharing
    if sharing is None or sharing.way is not SharingWay.TIME_SLICING:
        return OWN
    return INTERVALS.index(sharing.interval)


def list_time_slices(claim: PreparedClaim) -> Iterator[tuple[GpuUuid, int]]:
    """The GPUs of a claim with a time slice other than the driver's own."""
    for device in claim.devices:
        number = find_turn(device)
        if number != OWN:
            yield device.gpu, number


class TimeSlices:
    """Sets time slices, and restores the driver's own."""

    def __init__(self, cards: GpuPartitioning) -> None:
        self._cards = cards

    async def begin(self, claim: PreparedClaim, inventory: Inventory) -> None:
        """Set the time slices of a claim's GPUs.

        Raises:
            NodeagentError: The driver refuses, or cannot be asked.
        """
        await self._set(dict(list_time_slices(claim)), inventory)

    async def end(self, claim: PreparedClaim, inventory: Inventory | None) -> None:
        """Restore the driver's own time slice; a gone or lost GPU comes back with it.

        Raises:
            NodeagentError: The driver refuses, or cannot be asked.
        """
        await self._set(dict.fromkeys(dict(list_time_slices(claim)), OWN), inventory)

    async def _set(self, numbers: dict[GpuUuid, int], inventory: Inventory | None) -> None:
        gpus = inventory.gpus if inventory is not None else ()
        there = [gpu for gpu in gpus if gpu.uuid in numbers and not gpu.lost]
        if there:
            async with self._cards.begin() as session:
                for gpu in there:
                    await session.set_time_slice(gpu, numbers[gpu.uuid])
