"""The sources about containers and GPUs: kubelet, runtime and driver."""

from collections.abc import Awaitable, Callable, Collection
from typing import NamedTuple, Protocol

from nodeagent.model.errors import NodeagentError
from nodeagent.model.ids import DeviceId, ResourceName
from nodeagent.model.parts import PodContainer
from nodeagent.model.ports import ContainerDevices, KubeletCheckpoint, PodListing, ProcessPlaces


class KubeletRecords(Protocol):
    """The kubelet's own records of devices and their holders."""

    async def read_pods(self) -> PodListing:
        """The pods and devices of the pod resources service.

        Raises:
            NodeagentError: The kubelet cannot be asked now.
        """
        ...

    async def read_checkpoint(self) -> KubeletCheckpoint:
        """The kubelet's checkpoint of devices.

        Raises:
            NodeagentError: The checkpoint is missing or unreadable.
        """
        ...

    async def read_pods_with(
        self, resource: ResourceName, devices: Collection[DeviceId]
    ) -> tuple[ContainerDevices, ...]:
        """The checkpoint's entries of pods with a container of just these devices.

        Raises:
            NodeagentError: The checkpoint is missing or unreadable.
        """
        ...


class Sources(NamedTuple):
    """The sources about containers beside the kubelet."""

    list_containers: Callable[[], Awaitable[tuple[PodContainer, ...]]]
    """Asks the container runtime."""
    places: ProcessPlaces | None = None
    """Finds the container of a process; `None` where GPUs and processes are simulated."""


async def list_or_explain(sources: Sources) -> tuple[tuple[PodContainer, ...] | None, str]:
    """The containers of the runtime; or `None`, and why the runtime does not answer."""
    try:
        return await sources.list_containers(), ""
    except NodeagentError as error:
        return None, str(error)
