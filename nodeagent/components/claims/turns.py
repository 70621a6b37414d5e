"""Time slices of shared GPUs, where a claim's configuration sets an interval.

Owns the numbers of the intervals, as the driver counts them.
"""

from collections.abc import Iterator

from nodeagent.components.claims.opaque import INTERVALS
from nodeagent.model.gpu import Inventory
from nodeagent.model.ids import GpuUuid
from nodeagent.model.journal import PreparedClaim, PreparedDevice, SharingWay
from nodeagent.model.ports import GpuPartitioning

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
