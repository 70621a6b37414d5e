"""The contract between a device plugin and a kubelet, on the real kubelet: the bodies are those of `tests/contract`."""

from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager, closing

import anyio
import pytest
from anyio.to_thread import run_sync

from nodeagent.edge.kubelet.errors import PodResourcesUnavailable
from nodeagent.edge.kubelet.pod_resources import PodResourcesClient
from nodeagent.model.ids import ResourceName
from tests.contract.kubelet.test_admission import *  # noqa: F403  the tests themselves
from tests.contract.kubelet.test_device_plugin import *  # noqa: F403
from tests.contract.kubelet.test_pod_resources import *  # noqa: F403
from tests.contract.kubelet.test_registration import *  # noqa: F403
from tests.integration.cluster.api import Json
from tests.integration.cluster.control import Cluster
from tests.integration.cluster.layout import NODE_NAME
from tests.integration.cluster.pods import Pods, has_reached, render_pod
from tests.support.wire.kubelets import PATIENCE_SECONDS, KubeletUnderTest, OpenKubelet

pytestmark = [pytest.mark.every_version, pytest.mark.may_leak("worker threads that ask the API server linger idle")]


class RealKubelet:
    """The kubelet of the real cluster as a kubelet under test."""

    def __init__(self, cluster: Cluster, pods: Pods) -> None:
        self._cluster, self._pods = cluster, pods
        self.minor = int(cluster.api.read_node()["status"]["nodeInfo"]["kubeletVersion"].split(".")[1])
        self.device_plugins_dir = cluster.layout.device_plugins
        self.plugins_registry_dir = cluster.layout.kubelet / "plugins_registry"
        self.pod_resources_socket = cluster.layout.pod_resources_socket
        self.pods_api_socket = cluster.layout.pods_api_socket
        self.checkpoint_file = cluster.layout.device_plugins / "kubelet_internal_checkpoint"

    async def restart(self) -> None:
        await run_sync(self._cluster.restart_kubelet)

    async def forget(self) -> None:
        await run_sync(self._cluster.stop, "kubelet")
        self.checkpoint_file.unlink()
        await self.restart()

    async def run_pod(self, name: str, resources: Mapping[str, int]) -> str:
        return await self._run_pod(render_pod(name, limits=resources))

    async def force_pod(self, name: str, resources: Mapping[str, int]) -> str:
        return await self._run_pod(render_pod(name, limits=resources, spec={"nodeName": NODE_NAME}))

    async def _run_pod(self, pod: Json) -> str:
        name = str(pod["metadata"]["name"])

        def run() -> Json:
            self._pods.create(pod)
            return self._pods.wait_for(
                name, "Running or Failed", lambda pod: has_reached(pod, "Running") or has_reached(pod, "Failed")
            )

        status = (await run_sync(run))["status"]
        return "" if status["phase"] == "Running" else str(status["message"])

    async def remove_pod(self, name: str) -> None:
        await run_sync(self._pods.delete, name)

    async def wait_offer(self, resource: str, capacity: int, allocatable: int) -> None:
        """Both the kubelet's account and the Node object must say so: either may tell of a kubelet before."""
        with closing(PodResourcesClient(self.pod_resources_socket)) as account, anyio.fail_after(PATIENCE_SECONDS):
            while not await self._offers(account, resource, capacity, allocatable):  # noqa: ASYNC110  a far process
                await anyio.sleep(0.1)

    async def _offers(self, account: PodResourcesClient, resource: str, capacity: int, allocatable: int) -> bool:
        try:
            healthy = len((await account.read_allocatable()).get(ResourceName(resource), ()))
        except PodResourcesUnavailable:
            return False
        status = (await run_sync(self._cluster.api.get, f"/api/v1/nodes/{NODE_NAME}"))["status"]
        shown = [int(status[key].get(resource, 0)) for key in ("capacity", "allocatable")]
        return healthy == allocatable and shown == [capacity, allocatable]


@pytest.fixture
def open_kubelet(node: Cluster, pods: Pods) -> OpenKubelet:
    """The real kubelet, in place of the stand-in."""

    @asynccontextmanager
    async def opened() -> AsyncIterator[KubeletUnderTest]:
        yield RealKubelet(node, pods)
        await run_sync(pods.delete_all)

    return opened
