"""Whether a GPU that differs from its layout was cut by another program, or lost its MIG devices by itself; pure.

Owns the GPUs with the layout in place, and the GPUs away since, or all of them while the driver was away: a GPU may
come back without any MIG device. Refuses to take a GPU with other MIG devices for a victim.
"""

from nodeagent.components.mig.wish import Wish
from nodeagent.model.gpu import Inventory
from nodeagent.model.ids import GpuUuid


class Settled:
    """The layout last in place, and its GPUs."""

    def __init__(self) -> None:
        self._wish: Wish | None = None
        self._seen: frozenset[GpuUuid] = frozenset()
        self._away: frozenset[GpuUuid] = frozenset()
        self._away_in = 0
        """The generation of the inventory in which a GPU was last away."""

    def forget(self) -> None:
        """No layout is asked for any more."""
        self._wish = None

    def is_of(self, wish: Wish) -> bool:
        """Whether this layout was in place."""
        return wish == self._wish

    def note_look(self, inventory: Inventory, *, has_driver: bool) -> None:
        """Note GPUs missing from an inventory as away; without a driver all are, as the inventory is an old copy."""
        here = {gpu.uuid for gpu in inventory.gpus if has_driver and not gpu.lost}
        if away := self._seen - here:
            self._away |= away
            self._away_in = inventory.generation

    def note_in_place(self, wish: Wish, inventory: Inventory) -> None:
        """Note GPUs cut as asked, or otherwise by another program; a GPU back intact counts as never away."""
        if wish != self._wish:
            self._seen = self._away = frozenset()
        if inventory.generation != self._away_in:
            self._away = frozenset()
        self._wish = wish
        self._seen |= {gpu.uuid for gpu in inventory.gpus}

    def list_cut(self, wish: Wish, inventory: Inventory) -> frozenset[GpuUuid]:
        """The GPUs cut by another program, among GPUs that differ."""
        if wish != self._wish:
            return frozenset()
        return self._seen - {gpu.uuid for gpu in inventory.gpus if gpu.uuid in self._away and not gpu.mig_devices}
