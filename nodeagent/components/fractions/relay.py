"""The handle to the component `fractions`: the kubelet asks on while a crashed component is built anew."""

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Protocol

from nodeagent.model.errors import PartsUnavailable
from nodeagent.model.ids import DeviceId, ResourceName
from nodeagent.model.plugin import ContainerAnswer
from nodeagent.model.ports import DevicePlugin


class PartKeeper(Protocol):
    """The component `fractions`, for the handle."""

    async def allocate(self, resource: ResourceName, devices: Sequence[DeviceId]) -> ContainerAnswer:
        """Reserve ids, durable before the answer.

        Raises:
            AllocationError: The ids must not be reserved.
        """
        ...

    async def pre_start(self, resource: ResourceName, devices: Sequence[DeviceId]) -> None:
        """Give the starting container with these ids its fractions.

        Raises:
            AllocationError: The container must not start now.
        """
        ...


class PartsRelay:
    """The handle; implements the port `PluginSource`."""

    def __init__(self) -> None:
        self._keeper: PartKeeper | None = None
        self.plugins: dict[ResourceName, DevicePlugin] = {}
        """The plugin of each resource, kept as long as the process lives."""

    @contextmanager
    def lead_to(self, keeper: PartKeeper) -> Iterator[None]:
        """Point the handle at the component for as long as the block lasts."""
        self._keeper = keeper
        try:
            yield
        finally:
            self._keeper = None

    def list_plugins(self) -> Mapping[ResourceName, DevicePlugin]:
        """The plugin of each resource."""
        return self.plugins

    def find_keeper(self) -> PartKeeper:
        """The component behind the handle.

        Raises:
            PartsUnavailable: The component is not running.
        """
        if self._keeper is None:
            raise PartsUnavailable("the part that gives them is starting or has failed: try again")
        return self._keeper
