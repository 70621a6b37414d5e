"""What a driver of claims is asked, by the real kubelet: the bodies are those of `tests/contract`."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest
from anyio.to_thread import run_sync

from nodeagent.model.claims import ClaimReference
from tests.contract.claims.test_driver import *  # noqa: F403  the tests themselves
from tests.integration.claims import API, CLAIMS
from tests.integration.cluster.api import Json
from tests.integration.cluster.control import Cluster
from tests.integration.cluster.layout import NODE_NAME
from tests.integration.cluster.pods import Pods, render_pod
from tests.support.wire.claim_kubelets import DRIVER, ClaimKubeletUnderTest, OpenClaimKubelet

pytestmark = pytest.mark.may_leak("worker threads that ask the API server linger idle")

CLASS: Json = {
    "apiVersion": "resource.k8s.io/v1",
    "kind": "DeviceClass",
    "metadata": {"name": DRIVER},
    "spec": {"selectors": [{"cel": {"expression": f"device.driver == '{DRIVER}'"}}]},
}
SLICE: Json = {
    "apiVersion": "resource.k8s.io/v1",
    "kind": "ResourceSlice",
    "metadata": {"name": "contract"},
    "spec": {
        "driver": DRIVER,
        "nodeName": NODE_NAME,
        "pool": {"name": NODE_NAME, "generation": 1, "resourceSliceCount": 1},
        "devices": [{"name": f"d{number}"} for number in range(4)],
    },
}


class RealClaimKubelet:
    """The kubelet of the real cluster, with a scheduler that gives claims their devices."""

    def __init__(self, cluster: Cluster, pods: Pods) -> None:
        self._cluster, self._pods = cluster, pods
        self.plugins_dir = cluster.layout.kubelet / "plugins"
        self.registry_dir = cluster.layout.kubelet / "plugins_registry"

    async def wait_registered(self) -> None:
        """A pod waits for it by itself."""

    async def make_claim(self, name: str) -> ClaimReference:
        request = {"name": "gpu", "exactly": {"deviceClassName": DRIVER}}
        document = {
            "apiVersion": "resource.k8s.io/v1",
            "kind": "ResourceClaim",
            "metadata": {"name": name},
            "spec": {"devices": {"requests": [request]}},
        }
        made = await run_sync(self._cluster.api.post, CLAIMS, document)
        return ClaimReference(namespace="default", name=name, uid=made["metadata"]["uid"])

    async def run_pod(self, name: str, *claims: ClaimReference) -> None:
        named = [{"name": claim.name, "resourceClaimName": claim.name} for claim in claims]
        pod = render_pod(name, spec={"resourceClaims": named})
        pod["spec"]["containers"][0]["resources"] = {"claims": [{"name": claim.name} for claim in claims]}
        await run_sync(self._pods.run, pod)

    async def end_pod(self, name: str) -> None:
        await run_sync(self._pods.delete, name)

    async def restart(self) -> None:
        await run_sync(self._cluster.restart_kubelet)


@pytest.fixture
def open_claim_kubelet(node: Cluster, pods: Pods) -> OpenClaimKubelet:
    """The real kubelet, in place of the stand-in."""

    def begin() -> None:
        node.api.post(f"{API}/deviceclasses", CLASS)
        node.api.post(f"{API}/resourceslices", SLICE)

    def end() -> None:
        pods.delete_all()
        for one in node.api.get(CLAIMS)["items"]:
            node.api.delete(f"{CLAIMS}/{one['metadata']['name']}")
        node.api.delete(f"{API}/resourceslices/contract")
        node.api.delete(f"{API}/deviceclasses/{DRIVER}")

    @asynccontextmanager
    async def opened() -> AsyncIterator[ClaimKubeletUnderTest]:
        await run_sync(begin)
        try:
            yield RealClaimKubelet(node, pods)
        finally:
            await run_sync(end)

    return opened
