"""Of a layout that was in place: whether a GPU that differs was cut by somebody, or has lost its cut by itself; pure.

Owns on which GPUs it was seen in place, and which of them were away since, or the driver with all of them: they may
come back without any MIG device. Refuses to take for lost what has been cut into something else.
"""

from nodeagent.components.mig.wish import Wish
from nodeagent.model.gpu import Inventory
from nodeagent.model.ids import GpuUuid


class Settled:
    """One layout, where it was in place."""

    def __init__(self) -> None:
        self._wish: Wish | None = None
        self._seen: frozenset[GpuUuid] = frozenset()
        self._away: frozenset[GpuUuid] = frozenset()
        self._away_in = 0
        """The generation of the inventory in which one of them was away last."""

    def forget(self) -> None:
        """No layout is asked for any more."""
        self._wish = None

    def is_of(self, wish: Wish) -> bool:
        """Whether just this was in place."""
        return wish == self._wish

    def note_look(self, inventory: Inventory, *, has_driver: bool) -> None:
        """These GPUs are here, unless there is no driver: what is told of them then is what it said before."""
        here = {gpu.uuid for gpu in inventory.gpus if has_driver and not gpu.lost}
        if away := self._seen - here:
            self._away |= away
            self._away_in = inventory.generation

    def note_in_place(self, wish: Wish, inventory: Inventory) -> None:
        """All is as asked for, or cut otherwise by somebody; whoever is back and has not lost it will have been cut."""
        if wish != self._wish:
            self._seen = self._away = frozenset()
        if inventory.generation != self._away_in:
            self._away = frozenset()
        self._wish = wish
        self._seen |= {gpu.uuid for gpu in inventory.gpus}

    def list_cut(self, wish: Wish, inventory: Inventory) -> frozenset[GpuUuid]:
        """The GPUs that somebody has cut otherwise, if they differ."""
        if wish != self._wish:
            return frozenset()
        return self._seen - {gpu.uuid for gpu in inventory.gpus if gpu.uuid in self._away and not gpu.mig_devices}
