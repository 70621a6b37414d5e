"""The kubelet state for the allocations: pod resources, checkpoint, and the kubelet's present run."""

import os
from collections.abc import Callable, Collection, Mapping
from pathlib import Path
from typing import Final, TypeVar

from nodeagent.core.children.worker_thread import WorkerThread
from nodeagent.core.errors import WorkerError
from nodeagent.edge.kubelet.checkpoint_file import CHECKPOINT_NAME, read_checkpoint, read_pods_with
from nodeagent.edge.kubelet.errors import CheckpointUnreadable
from nodeagent.edge.kubelet.pod_resources import PodResourcesClient
from nodeagent.model.ids import DeviceId, ResourceName
from nodeagent.model.ports import ContainerDevices, KubeletCheckpoint, PodListing

T = TypeVar("T")

CHECKPOINT_SECONDS: Final = 5.0
PATIENCE_SECONDS: Final = 0.003
"""How long the event loop stands still for a read while a container waits: enough for a sound file."""


class KubeletState:
    """Reads the kubelet state; belongs to the event loop's thread."""

    def __init__(self, device_plugins_dir: Path, pod_resources_socket: Path) -> None:
        # As text: a path costs as much as the call, and a pod waits for both.
        self._socket = str(device_plugins_dir / "kubelet.sock")
        self._checkpoint = device_plugins_dir / CHECKPOINT_NAME
        self._client = PodResourcesClient(pod_resources_socket)
        self._worker = WorkerThread("kubelet checkpoint")

    async def read_pods(self) -> PodListing:
        """All active pods and the devices of containers."""
        return await self._client.read_pods()

    async def read_allocatable(self) -> Mapping[ResourceName, frozenset[DeviceId]]:
        """The healthy devices of each resource, including devices in use."""
        return await self._client.read_allocatable()

    async def read_checkpoint(self) -> KubeletCheckpoint:
        """The kubelet's notes for a restart of the kubelet."""
        return await self._read(lambda: read_checkpoint(self._checkpoint))

    async def read_pods_with(
        self, resource: ResourceName, devices: Collection[DeviceId]
    ) -> tuple[ContainerDevices, ...]:
        """The checkpoint's entries of pods with a container of exactly these devices; faster than reading it whole."""
        return await self._read(
            lambda: read_pods_with(self._checkpoint, resource, devices), patience_seconds=PATIENCE_SECONDS
        )

    async def _read(self, call: Callable[[], T], *, patience_seconds: float = 0.0) -> T:
        try:
            return await self._worker.run(
                call,
                timeout_seconds=CHECKPOINT_SECONDS,
                what="reading the kubelet's checkpoint",
                patience_seconds=patience_seconds,
            )
        except WorkerError as error:
            raise CheckpointUnreadable(str(self._checkpoint), str(error)) from error

    def identify_run(self) -> tuple[str, float] | None:
        """A name for the kubelet's present run, and the begin of the run: each run makes the kubelet's socket anew."""
        try:
            status = os.stat(self._socket)  # noqa: PTH116  see above
        except OSError:
            # Missing or hidden: there is no kubelet to call the agent.
            return None
        return f"{status.st_dev}:{status.st_ino}:{status.st_ctime_ns}", status.st_ctime

    def close(self) -> None:
        """End the thread and hang up."""
        self._client.close()
        self._worker.close()
