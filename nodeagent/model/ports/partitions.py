"""Ports of partitioning GPUs for claims of single MIG devices."""

from collections.abc import Mapping
from typing import Protocol

from nodeagent.model.gpu import MigDevice
from nodeagent.model.mig import PartitionRequest


class PartitionMaking(Protocol):
    """Creates single MIG devices on demand and removes them again, whatever else is on the GPU.

    Present where `mig.manage` is on. Every call is safe to repeat, after a crash too: each step is journalled
    beforehand, and half-made instances are removed at the agent's start before any answer. Other instances of the GPU
    are never touched; a call waits for a change under way, and no longer.
    """

    async def make_partition(self, key: str, request: PartitionRequest) -> MigDevice:
        """The MIG device of a key: created, seen in the inventory, and durably the key's.

        The same key and request give the same device, created again after a reboot or a reset.
        MIG is switched on for it where the GPU has no holder and no process.

        Args:
            key: such as a claim's UID and the device's name; chosen by the caller.
            request: the requested device.

        Raises:
            NodeagentError: There is no such device, and no rest of it; the message says why. The call may be repeated.
        """
        ...

    async def remove_partition(self, key: str) -> None:
        """Remove a key's MIG device; fine for a key without a device.

        With the last device MIG is switched off again, where it was switched on for the first.

        Raises:
            NodeagentError: The device is still there, and still the key's: it is in use, or the driver refuses.
        """
        ...

    def partitions(self) -> Mapping[str, PartitionRequest] | None:
        """Each key's device, by the journal; `None` before the journal is read, in contrast to an empty map."""
        ...
