"""What is asked of whoever cuts GPUs by a part that gives single MIG devices to claims."""

from collections.abc import Mapping
from typing import Protocol

from nodeagent.model.gpu import MigDevice
from nodeagent.model.mig import PartitionWish


class PartitionMaking(Protocol):
    """Makes a single MIG device when it is wanted and takes it away again, whatever else its GPU is cut into.

    It exists where `mig.manage` is on. Every call is safe to repeat, after a crash too: what was begun is written down
    before it is done, and what was half made when the agent died is taken back before anybody is answered. Other
    instances of the GPU are never touched; a call waits while another change is made, and no longer than that change.
    """

    async def make_partition(self, key: str, wish: PartitionWish) -> MigDevice:
        """The MIG device that this key has from now on: made, seen in the inventory, and durably the key's.

        The same key with the same wish answers with the same device, made again where a reboot or a reset took it.
        MIG is switched on for it where nobody has or uses the GPU.

        Args:
            key: who it is for, such as a claim's UID and the name of the device; its owner chooses.
            wish: what it is to be.

        Raises:
            NodeagentError: it is not there, and nothing is left of it; says why. It may be asked for again.
        """
        ...

    async def remove_partition(self, key: str) -> None:
        """Take away what this key has; fine where it has nothing.

        With the last one goes MIG itself where it was switched on for the first.

        Raises:
            NodeagentError: it is still there, and still the key's: somebody uses it, or the driver refuses.
        """
        ...

    def partitions(self) -> Mapping[str, PartitionWish] | None:
        """What each key has, in the journal's words; `None` while nobody knows, which is not the same as nothing."""
        ...
