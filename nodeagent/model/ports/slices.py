"""Ports of the API server for the node's resource slices."""

from collections.abc import AsyncGenerator, Collection, Mapping
from typing import Protocol

from nodeagent.model.ids import PciAddress
from nodeagent.model.slices import SliceContent, StoredSlice


class SliceApi(Protocol):
    """The slices of a driver on the node; every call is bounded in time and fails with a `NodeagentError` only."""

    def follow_slices(self) -> AsyncGenerator[Mapping[str, StoredSlice], None]:
        """All slices by name, now and after each change, whoever made it, until there is a gap.

        Raises:
            NodeagentError: The slices cannot be followed (any longer).
        """
        ...

    async def read_node_uid(self) -> str:
        """The uid of the node object, with which the slices are deleted.

        Raises:
            NodeagentError: The uid could not be read.
        """
        ...

    async def create(self, name: str, content: SliceContent, numbers: tuple[int, int], node_uid: str) -> StoredSlice:
        """Create a slice, with its pool's generation and number of slices; returns the slice as stored.

        Raises:
            NodeagentError: The slice was not created.
        """
        ...

    async def update(
        self, stored: StoredSlice, content: SliceContent, numbers: tuple[int, int], node_uid: str
    ) -> StoredSlice:
        """Replace the content of a slice, unless another program has done so meanwhile.

        Raises:
            NodeagentError: The slice was not written.
        """
        ...

    async def delete(self, stored: StoredSlice) -> None:
        """Delete a slice, unless it was replaced; fine when already gone.

        Raises:
            NodeagentError: The slice was not deleted.
        """
        ...


class PcieRoots(Protocol):
    """PCIe roots of the node's PCI devices."""

    async def read_roots(self, addresses: Collection[PciAddress]) -> Mapping[PciAddress, str]:
        """The root above each device, such as `pci0000:00`; devices with an unknown root are left out.

        Raises:
            NodeagentError: The kernel does not answer.
        """
        ...
