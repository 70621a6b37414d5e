"""How a plugin keeps its standing with the real kubelet, where the kubelet makes that hard."""

from contextlib import closing

import anyio
import pytest
from anyio.abc import TaskStatus

from nodeagent.edge.kubelet import list_check
from nodeagent.edge.kubelet.pod_resources import PodResourcesClient
from nodeagent.edge.kubelet.registry_session import RegistrySession
from tests.fakes.device_plugin import FakeDevicePlugin, make_devices
from tests.integration.cluster.control import Cluster
from tests.integration.cluster.pods import Pods
from tests.integration.test_device_plugin_contract import RealKubelet
from tests.support.waiting import wait_until
from tests.support.wire.kubelets import Standing, no_crash, running_session

pytestmark = pytest.mark.may_leak("worker threads that ask the API server linger idle")

GPU = "nvidia.com/gpu"


async def test_update_with_overlap_heals(node: Cluster, pods: Pods) -> None:
    """When an older plugin of the same resource ends, the kubelet disconnects the newer one, which registers again."""
    kubelet = RealKubelet(node, pods)
    async with anyio.create_task_group() as tasks:
        leave = anyio.Event()

        async def run_old(*, task_status: TaskStatus[None]) -> None:
            async with running_session(FakeDevicePlugin(), kubelet.device_plugins_dir, "old.sock"):
                await kubelet.wait_offer(GPU, 8, 8)
                task_status.started()
                await leave.wait()

        await tasks.start(run_old)
        async with running_session(
            FakeDevicePlugin(make_devices(4)), kubelet.device_plugins_dir, "new.sock"
        ) as standing:
            await kubelet.wait_offer(GPU, 4, 4)
            leave.set()
            await wait_until(lambda: any("does not follow" in report.last_error for report in standing.reports))
            await kubelet.wait_offer(GPU, 4, 4)


@pytest.mark.parametrize("endpoint", ["theirs.sock", "ours.sock"])
async def test_another_plugin_that_leaves_first_is_outlived(
    node: Cluster, pods: Pods, monkeypatch: pytest.MonkeyPatch, endpoint: str
) -> None:
    """The kubelet stops the resource with the plugin that came last; ours is told, and registers again by itself."""
    monkeypatch.setattr(list_check, "LOOK_SECONDS", 1.0)
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


async def test_plugin_is_found_through_the_registry(node: Cluster, pods: Pods) -> None:
    """The kubelet finds the registration socket by itself, again after its restart, and gives pods the devices."""
    kubelet, standing = RealKubelet(node, pods), Standing()
    session = RegistrySession(
        FakeDevicePlugin(),
        kubelet.plugins_registry_dir.parent / "gpu.sock",
        kubelet.plugins_registry_dir / "gpu-reg.sock",
        report=standing.reports.append,
        report_crash=no_crash,
    )
    async with anyio.create_task_group() as tasks:
        await tasks.start(session.run)
        await kubelet.wait_offer(GPU, 8, 8)
        assert not await kubelet.run_pod("pod-a", {GPU: 2})
        await kubelet.restart()
        await kubelet.wait_offer(GPU, 8, 8)
        assert not await kubelet.run_pod("pod-b", {GPU: 2})
        await kubelet.remove_pod("pod-a")
        await kubelet.remove_pod("pod-b")
        tasks.cancel_scope.cancel()


async def test_list_of_many_shares_is_taken(node: Cluster, pods: Pods) -> None:
    """1,600 devices on two NUMA nodes are offered, and a pod gets the ones that are preferred."""
    kubelet, plugin = RealKubelet(node, pods), FakeDevicePlugin(make_devices(1600, numa_nodes=2))
    async with running_session(plugin, kubelet.device_plugins_dir):
        await kubelet.wait_offer(GPU, 1600, 1600)
        assert not await kubelet.run_pod("pod-a", {GPU: 2})
        await kubelet.remove_pod("pod-a")
    assert [sorted(devices) for devices in plugin.allocated] == [["GPU-0000", "GPU-0001"]]
