"""How long each of those who share a GPU has its turn, where the configuration of a claim says so.

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
    """The time slice that a claim asks for; the driver's own where it asks for none."""
    sharing = device.sharing
    if sharing is None or sharing.way is not SharingWay.TIME_SLICING:
        return OWN
    return INTERVALS.index(sharing.interval)


def list_turns(claim: PreparedClaim) -> Iterator[tuple[GpuUuid, int]]:
    """The GPUs of a claim whose time slice is another than the driver's own."""
    for device in claim.devices:
        number = find_turn(device)
        if number != OWN:
            yield device.gpu, number


class Turns:
    """Sets them, and gives them back to the driver."""

    def __init__(self, cards: GpuPartitioning) -> None:
        self._cards = cards

    async def begin(self, claim: PreparedClaim, inventory: Inventory) -> None:
        """Have the GPUs of a claim be as it asks.

        Raises:
            NodeagentError: the driver refuses, or cannot be asked.
        """
        await self._set(dict(list_turns(claim)), inventory)

    async def end(self, claim: PreparedClaim, inventory: Inventory | None) -> None:
        """Have them be as the driver likes; one that is gone or lost is so by itself when it is back.

        Raises:
            NodeagentError: the driver refuses, or cannot be asked.
        """
        await self._set(dict.fromkeys(dict(list_turns(claim)), OWN), inventory)

    async def _set(self, numbers: dict[GpuUuid, int], inventory: Inventory | None) -> None:
        gpus = inventory.gpus if inventory is not None else ()
        there = [gpu for gpu in gpus if gpu.uuid in numbers and not gpu.lost]
        if there:
            async with self._cards.begin() as session:
                for gpu in there:
                    await session.set_time_slice(gpu, numbers[gpu.uuid])
