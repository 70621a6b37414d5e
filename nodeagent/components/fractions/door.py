"""The way to whoever gives GPUs in parts now: it is built anew after each crash, the kubelet asks on."""

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Protocol

from nodeagent.model.errors import PartsUnavailable
from nodeagent.model.ids import DeviceId, ResourceName
from nodeagent.model.plugin import ContainerAnswer
from nodeagent.model.ports import DevicePlugin


class PartKeeper(Protocol):
    """Who gives GPUs in parts."""

    async def allocate(self, resource: ResourceName, devices: Sequence[DeviceId]) -> ContainerAnswer:
        """Promise ids; durable when it is answered.

        Raises:
            AllocationError: they must not be promised.
        """
        ...

    async def pre_start(self, resource: ResourceName, devices: Sequence[DeviceId]) -> None:
        """Give the container that starts with these ids its parts.

        Raises:
            AllocationError: it must not start now.
        """
        ...


class PartsDoor:
    """Leads to them; implements the port `PluginSource`."""

    def __init__(self) -> None:
        self._keeper: PartKeeper | None = None
        self.plugins: dict[ResourceName, DevicePlugin] = {}
        """Who answers for which resource, as long as the process lives."""

    @contextmanager
    def lead_to(self, keeper: PartKeeper) -> Iterator[None]:
        """Lead to this keeper for as long as the block lasts."""
        self._keeper = keeper
        try:
            yield
        finally:
            self._keeper = None

    def list_plugins(self) -> Mapping[ResourceName, DevicePlugin]:
        """Who answers for which resource."""
        return self.plugins

    def find_keeper(self) -> PartKeeper:
        """Who is asked now.

        Raises:
            PartsUnavailable: nobody can be.
        """
        if self._keeper is None:
            raise PartsUnavailable("the part that gives them is starting or has failed: try again")
        return self._keeper
