"""The sources that know which containers there are and which GPUs they hold: kubelet, runtime and driver."""

from collections.abc import Awaitable, Callable, Collection
from typing import NamedTuple, Protocol

from nodeagent.model.errors import NodeagentError
from nodeagent.model.ids import DeviceId, ResourceName
from nodeagent.model.parts import PodContainer
from nodeagent.model.ports import ContainerDevices, KubeletCheckpoint, PodListing, ProcessPlaces


class KubeletRecords(Protocol):
    """The kubelet's own word on who holds what."""

    async def read_pods(self) -> PodListing:
        """Its list.

        Raises:
            NodeagentError: it cannot be asked now.
        """
        ...

    async def read_checkpoint(self) -> KubeletCheckpoint:
        """Its notes.

        Raises:
            NodeagentError: there are none, or they make no sense.
        """
        ...

    async def read_pods_with(
        self, resource: ResourceName, devices: Collection[DeviceId]
    ) -> tuple[ContainerDevices, ...]:
        """What its notes say of pods of which a container has just these devices.

        Raises:
            NodeagentError: there are none, or they make no sense.
        """
        ...


class Sources(NamedTuple):
    """The sources that know which containers there are."""

    list_containers: Callable[[], Awaitable[tuple[PodContainer, ...]]]
    """Asks the container runtime."""
    places: ProcessPlaces | None = None
    """Whose a process is; none where GPUs are made up, and processes with them."""


async def list_or_explain(sources: Sources) -> tuple[tuple[PodContainer, ...] | None, str]:
    """The containers of the runtime; `None` where it does not tell, and why."""
    try:
        return await sources.list_containers(), ""
    except NodeagentError as error:
        return None, str(error)
