"""Kubelets for tests: what a test may ask of one, whether it is the stand-in or the real one."""

from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from pathlib import Path
from typing import Protocol

import anyio

from nodeagent.edge.kubelet.list_check import ReadAllocatable
from nodeagent.edge.kubelet.plugin_session import PluginSession
from nodeagent.model.plugin import AdvertisedResource
from nodeagent.model.ports import DevicePlugin
from nodeagent_sim.kubelet.kubelet import StandInKubelet
from nodeagent_sim.kubelet.pods import AdmissionRefused, ContainerStartFailed

NAMESPACE = "default"
"""Where the pods of a test are."""
PATIENCE_SECONDS = 30.0
"""Far beyond what a slow machine or a real kubelet needs."""


class KubeletUnderTest(Protocol):
    """The least that the contract needs; a harness for the real kubelet has the same methods."""

    @property
    def minor(self) -> int:
        """The minor version of Kubernetes."""

    @property
    def device_plugins_dir(self) -> Path: ...

    @property
    def plugins_registry_dir(self) -> Path: ...

    @property
    def pod_resources_socket(self) -> Path: ...

    @property
    def pods_api_socket(self) -> Path: ...

    @property
    def checkpoint_file(self) -> Path: ...

    async def restart(self) -> None:
        """End the process and begin a new one; pods go on running."""

    async def forget(self) -> None:
        """End the process, lose its checkpoint, begin a new one."""

    async def run_pod(self, name: str, resources: Mapping[str, int]) -> str:
        """Have a pod admitted and started; returns why not, empty when it runs."""

    async def force_pod(self, name: str, resources: Mapping[str, int]) -> str:
        """The same past the scheduler, which would keep a pod from a node that has not enough for it."""

    async def remove_pod(self, name: str) -> None:
        """Delete a pod and wait until it is gone."""

    async def wait_offer(self, resource: str, capacity: int, allocatable: int) -> None:
        """Return when the node offers just this."""


OpenKubelet = Callable[[], AbstractAsyncContextManager[KubeletUnderTest]]


class StandIn:
    """The stand-in as a kubelet under test."""

    def __init__(self, kubelet: StandInKubelet) -> None:
        self.kubelet, self.minor = kubelet, kubelet.minor
        self.device_plugins_dir = kubelet.device_plugins_dir
        self.plugins_registry_dir = kubelet.plugins_registry_dir
        self.pod_resources_socket, self.pods_api_socket = kubelet.pod_resources_socket, kubelet.pods_api_socket
        self.checkpoint_file = kubelet.checkpoint_file

    async def restart(self) -> None:
        await self.kubelet.restart()

    async def forget(self) -> None:
        await self.kubelet.forget()

    async def run_pod(self, name: str, resources: Mapping[str, int]) -> str:
        try:
            await self.kubelet.add_pod(NAMESPACE, name, resources)
        except (AdmissionRefused, ContainerStartFailed) as error:
            return str(error)
        return ""

    async def force_pod(self, name: str, resources: Mapping[str, int]) -> str:
        return await self.run_pod(name, resources)

    async def remove_pod(self, name: str) -> None:
        self.kubelet.delete_pod(NAMESPACE, name)

    def drop_plugin(self, resource: str) -> None:
        """Hang up on the plugin of a resource, as the kubelet's defect does."""
        self.kubelet.drop_plugin(resource)

    def ignore_registrations(self, count: int) -> None:
        """Answer so many registrations and then do nothing about them."""
        self.kubelet.ignore_registrations = count

    async def wait_offer(self, resource: str, capacity: int, allocatable: int) -> None:
        with anyio.fail_after(PATIENCE_SECONDS):
            await self.kubelet.wait_until(
                lambda: self.kubelet.offers().get(resource, (0, 0)) == (capacity, allocatable)
            )


@asynccontextmanager
async def running_stand_in(root: Path, *, minor: int = 37) -> AsyncIterator[StandIn]:
    """A stand-in kubelet that serves for as long as the block lasts."""
    kubelet = StandInKubelet(root, minor=minor)
    async with anyio.create_task_group() as tasks:
        await tasks.start(kubelet.run)
        yield StandIn(kubelet)
        tasks.cancel_scope.cancel()


class Standing:
    """Everything that a session has reported about its resource."""

    def __init__(self) -> None:
        self.reports: list[AdvertisedResource] = []

    @property
    def now(self) -> AdvertisedResource:
        return self.reports[-1]


def no_crash(path: str, error: Exception) -> None:
    raise AssertionError(f"the plugin crashed on {path}") from error


@asynccontextmanager
async def running_session(
    plugin: DevicePlugin, directory: Path, endpoint: str = "n.sock", read_allocatable: ReadAllocatable | None = None
) -> AsyncIterator[Standing]:
    """A plugin that is kept registered for as long as the block lasts."""
    standing = Standing()
    session = PluginSession(
        plugin,
        directory,
        endpoint,
        report=standing.reports.append,
        report_crash=no_crash,
        read_allocatable=read_allocatable,
    )
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(session.run)
        yield standing
        tasks.cancel_scope.cancel()
