"""How a plugin keeps its standing with the real kubelet, where the kubelet makes that hard."""

from contextlib import closing

import anyio
import pytest
from anyio.abc import TaskStatus

from nodeagent.edge.kubelet import list_check
from nodeagent.edge.kubelet.pod_resources import PodResourcesClient
from tests.fakes.device_plugin import FakeDevicePlugin, make_devices
from tests.integration.cluster.control import Cluster
from tests.integration.cluster.pods import Pods
from tests.integration.test_device_plugin_contract import RealKubelet
from tests.support.waiting import wait_until
from tests.support.wire.kubelets import running_session

pytestmark = pytest.mark.may_leak("worker threads that ask the API server linger idle")

GPU = "nvidia.com/gpu"


@pytest.mark.parametrize("endpoint", ["theirs.sock", "ours.sock"])
async def test_another_plugin_that_leaves_first_is_outlived(
    node: Cluster, pods: Pods, monkeypatch: pytest.MonkeyPatch, endpoint: str
) -> None:
    """The kubelet stops the resource with the plugin that came last; ours is told, and registers again by itself."""
    monkeypatch.setattr(list_check, "POLL_INTERVAL_SECONDS", 1.0)
    kubelet = RealKubelet(node, pods)
    with closing(PodResourcesClient(kubelet.pod_resources_socket)) as account:
        async with (
            running_session(
                FakeDevicePlugin(), kubelet.device_plugins_dir, "ours.sock", account.read_allocatable
            ) as standing,
            anyio.create_task_group() as tasks,
        ):
            await kubelet.wait_offer(GPU, 8, 8)
            leave = anyio.Event()

            async def run_other(*, task_status: TaskStatus[None]) -> None:
                plugin = FakeDevicePlugin(make_devices(4, prefix="other-"))
                async with running_session(plugin, kubelet.device_plugins_dir, endpoint):
                    await kubelet.wait_offer(GPU, 4, 4)
                    task_status.started()
                    await leave.wait()

            await tasks.start(run_other)
            await wait_until(lambda: standing.now.contested)
            assert not await kubelet.run_pod("served-by-the-other", {GPU: 1})
            leave.set()
            await kubelet.wait_offer(GPU, 8, 8)
            await wait_until(lambda: standing.now.registered and not standing.now.contested)
            assert not await kubelet.run_pod("served-by-ours", {GPU: 1})
            await kubelet.remove_pod("served-by-the-other")
            await kubelet.remove_pod("served-by-ours")


async def test_list_of_many_shares_is_taken(node: Cluster, pods: Pods) -> None:
    """1,600 devices on two NUMA nodes are offered, and a pod gets the ones that are preferred."""
    kubelet, plugin = RealKubelet(node, pods), FakeDevicePlugin(make_devices(1600, numa_nodes=2))
    async with running_session(plugin, kubelet.device_plugins_dir):
        await kubelet.wait_offer(GPU, 1600, 1600)
        assert not await kubelet.run_pod("pod-a", {GPU: 2})
        await kubelet.remove_pod("pod-a")
    assert [sorted(devices) for devices in plugin.allocated] == [["GPU-0000", "GPU-0001"]]
