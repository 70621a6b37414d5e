"""What is asked of the API server about this node's slices."""

from collections.abc import AsyncGenerator, Collection, Mapping
from typing import Protocol

from nodeagent.model.ids import PciAddress
from nodeagent.model.slices import SliceContent, StoredSlice


class SliceApi(Protocol):
    """The slices of one driver on this node; every call is bounded in time and fails with a `NodeagentError` only."""

    def follow_slices(self) -> AsyncGenerator[Mapping[str, StoredSlice], None]:
        """All of them by name, now and after each change that anybody makes, until there is a gap.

        Raises:
            NodeagentError: they cannot be followed (any longer).
        """
        ...

    async def read_node_uid(self) -> str:
        """Of the node object, with which the slices go.

        Raises:
            NodeagentError: it could not be read.
        """
        ...

    async def create(self, name: str, content: SliceContent, numbers: tuple[int, int], node_uid: str) -> StoredSlice:
        """Make one, with the generation of its pool and the number of its slices; answers with what was kept of it.

        Raises:
            NodeagentError: it was not made.
        """
        ...

    async def update(
        self, stored: StoredSlice, content: SliceContent, numbers: tuple[int, int], node_uid: str
    ) -> StoredSlice:
        """Put another content in the place of this one, if nobody else has meanwhile.

        Raises:
            NodeagentError: it was not written.
        """
        ...

    async def delete(self, stored: StoredSlice) -> None:
        """Take one away, if it is still this one; fine when it is gone already.

        Raises:
            NodeagentError: it was not taken away.
        """
        ...


class PcieRoots(Protocol):
    """The trees that this node's PCI devices hang in."""

    async def read_roots(self, addresses: Collection[PciAddress]) -> Mapping[PciAddress, str]:
        """The root above each, such as `pci0000:00`; those that cannot be told are left out.

        Raises:
            NodeagentError: the kernel does not answer.
        """
        ...
