"""The way to whoever gives GPUs in parts now: it is built anew after each crash, the kubelet asks on."""

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Protocol

from nodeagent.model.errors import ControlRefused, PartsUnavailable
from nodeagent.model.ids import DeviceId, ResourceName
from nodeagent.model.parts import PartWish
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

    async def set_part(self, wish: PartWish) -> str:
        """Give a running container other limits; says what it has now.

        Raises:
            ControlRefused: no such container, or the GPU has not so much left.
        """
        ...


class PartsRelay:
    """Leads to them; implements the ports `PluginSource` and `PartSetting`."""

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

    async def set_part(self, wish: PartWish) -> str:
        """Give a running container other limits, on a person's word.

        Raises:
            ControlRefused: no such container, the GPU has not so much left, or nobody gives parts at the moment.
        """
        if self._keeper is None:
            raise ControlRefused("no parts of GPUs are given: `fractions.enabled` is off, or the part is starting")
        return await self._keeper.set_part(wish)

    def find_keeper(self) -> PartKeeper:
        """Who is asked now.

        Raises:
            PartsUnavailable: nobody can be.
        """
        if self._keeper is None:
            raise PartsUnavailable("the part that gives them is starting or has failed: try again")
        return self._keeper
