"""What the agent relies on of a container runtime, on the real containerd: the bodies are those of `tests/contract`."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest
from anyio.to_thread import run_sync

from tests.contract.cri.test_runtime import *  # noqa: F403  the tests themselves
from tests.integration.cluster.control import Cluster
from tests.integration.cluster.pods import Pods, render_pod
from tests.support.wire.runtimes import OpenRuntime, RuntimeUnderTest

pytestmark = pytest.mark.may_leak("worker threads that ask the API server linger idle")


class RealRuntime:
    """The containerd of the real cluster as a runtime under test."""

    def __init__(self, cluster: Cluster, pods: Pods) -> None:
        self.socket, self._pods = cluster.layout.containerd_socket, pods

    async def run_pod(self, name: str) -> str:
        await run_sync(self._pods.run, render_pod(name))
        return await run_sync(self._pods.container_id, name)

    async def end_pod(self, name: str) -> str:
        await run_sync(self._pods.create, render_pod(name, ("true",)))
        await run_sync(self._pods.wait, name, "Succeeded")
        return await run_sync(self._pods.container_id, name)


@pytest.fixture
def open_runtime(node: Cluster, pods: Pods) -> OpenRuntime:
    """The real containerd, in place of the stand-in."""

    @asynccontextmanager
    async def opened() -> AsyncIterator[RuntimeUnderTest]:
        yield RealRuntime(node, pods)
        await run_sync(pods.delete_all)

    return opened
