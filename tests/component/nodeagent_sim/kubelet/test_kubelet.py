"""The stand-in does to pods and plugins what the kubelet does."""

import json
import stat
import subprocess
import sys
from pathlib import Path

import anyio
import pytest

from nodeagent.edge.grpc import unix_socket
from nodeagent.edge.grpc.errors import SocketUnavailable
from nodeagent.model.errors import DeviceUnhealthy
from nodeagent.model.plugin import PluginOptions
from nodeagent_sim.kubelet.kubelet import KubeletDown, StandInKubelet
from nodeagent_sim.kubelet.pod_script import PodScript
from nodeagent_sim.kubelet.pods import AdmissionRefused, ContainerStartFailed, PodPhase
from tests.fakes.device_plugin import FakeDevicePlugin, make_devices
from tests.support.waiting import wait_until
from tests.support.wire.kubelets import running_session, running_stand_in

GPU = "nvidia.com/gpu"


async def test_init_containers_devices_must_be_included(short_dir: Path) -> None:
    """The preference for a container is asked with what its init container had, and the answer may rely on it."""
    plugin = FakeDevicePlugin()
    async with running_stand_in(short_dir) as under_test, running_session(plugin, under_test.device_plugins_dir):
        await under_test.wait_offer(GPU, 8, 8)
        kubelet = under_test.kubelet
        pod = await kubelet.add_pod("ml", "pod", {GPU: 4}, init_resources={GPU: 2})
        assert pod.phase is PodPhase.RUNNING
        assert len(kubelet.held_devices("ml", "pod")) == 4
        assert kubelet.count_free(GPU) == 4
        assert {holder.name for holder in kubelet.holders().values()} == {"pod"}
    ids = tuple(device.id for device in make_devices(8))
    assert plugin.preferences == [(ids, (), 2), (ids, ids[:2], 4)]


async def test_smaller_container_needs_no_preference(short_dir: Path) -> None:
    """When the init container had enough, nothing is left to prefer, but the answer is asked for again."""
    plugin = FakeDevicePlugin()
    async with running_stand_in(short_dir) as under_test, running_session(plugin, under_test.device_plugins_dir):
        await under_test.wait_offer(GPU, 8, 8)
        await under_test.kubelet.add_pod("ml", "pod", {GPU: 1}, init_resources={GPU: 2})
    assert (len(plugin.preferences), len(plugin.allocated)) == (1, 2)


async def test_pod_without_devices_is_not_our_business(short_dir: Path) -> None:
    """A resource that no plugin was ever heard of is passed over, as the kubelet does: the pod starts without it."""
    async with running_stand_in(short_dir) as under_test:
        pod = await under_test.kubelet.add_pod("ml", "pod", {"nobody.com/x": 1})
        assert pod.phase is PodPhase.RUNNING
        assert under_test.kubelet.holders() == {}


async def test_full_node_refuses(short_dir: Path) -> None:
    """A pod too many fails for good, with the kubelet's reason and text, and holds nothing."""
    plugin = FakeDevicePlugin(make_devices(2))
    async with running_stand_in(short_dir) as under_test, running_session(plugin, under_test.device_plugins_dir):
        await under_test.wait_offer(GPU, 2, 2)
        kubelet = under_test.kubelet
        await kubelet.add_pod("ml", "first", {GPU: 2})
        with pytest.raises(AdmissionRefused, match="Requested: 1, Available: 0, which is unexpected"):
            await kubelet.add_pod("ml", "second", {GPU: 1})
        failed = kubelet.pods[-1]
        assert (failed.phase, failed.reason) == (PodPhase.FAILED, "UnexpectedAdmissionError")
        assert failed.message.startswith("Pod was rejected: Allocate failed due to")


async def test_stopped_plugin_fails_pods(short_dir: Path) -> None:
    """While no plugin serves the resource, pods that ask for it fail with the kubelet's words."""
    async with running_stand_in(short_dir) as under_test:
        async with running_session(FakeDevicePlugin(), under_test.device_plugins_dir):
            await under_test.wait_offer(GPU, 8, 8)
        await under_test.wait_offer(GPU, 8, 0)
        assert "no healthy devices present" in await under_test.run_pod("pod", {GPU: 1})


async def test_objection_at_start_keeps_the_devices(short_dir: Path) -> None:
    """A plugin that objects to a start leaves the pod pending with its devices; the start may be tried again."""
    plugin = FakeDevicePlugin(options=PluginOptions(pre_start=True))
    async with running_stand_in(short_dir) as under_test, running_session(plugin, under_test.device_plugins_dir):
        await under_test.wait_offer(GPU, 8, 8)
        kubelet = under_test.kubelet
        crash_free = plugin.pre_start

        async def object_once(devices: object) -> None:
            plugin.pre_start = crash_free  # type: ignore[method-assign]
            raise DeviceUnhealthy("GPU-0000", "fell off the bus")

        plugin.pre_start = object_once  # type: ignore[method-assign]
        with pytest.raises(ContainerStartFailed, match="fell off the bus"):
            await kubelet.add_pod("ml", "pod", {GPU: 2})
        assert [pod.phase for pod in kubelet.pods] == [PodPhase.PENDING]
        assert len(kubelet.held_devices("ml", "pod")) == 2
        await kubelet.start_containers("ml", "pod")
        assert [pod.phase for pod in kubelet.pods] == [PodPhase.RUNNING]


async def test_without_a_process_nothing_is_admitted(short_dir: Path) -> None:
    """While the kubelet is down there is no offer and no admission; pods go on running."""
    async with running_stand_in(short_dir) as under_test:
        kubelet = under_test.kubelet
        async with running_session(FakeDevicePlugin(), under_test.device_plugins_dir):
            await under_test.wait_offer(GPU, 8, 8)
            await kubelet.add_pod("ml", "running", {GPU: 1})
            await kubelet.stop()
            assert (kubelet.offers(), kubelet.registrations, kubelet.count_free(GPU)) == ({}, (), 0)
            with pytest.raises(KubeletDown):
                await kubelet.add_pod("ml", "late", {GPU: 1})
            with pytest.raises(KubeletDown):
                await kubelet.start_containers("ml", "running")
            kubelet.drop_plugin(GPU)
            await kubelet.start()
            assert [pod.name for pod in kubelet.pods] == ["running"]
            await under_test.wait_offer(GPU, 8, 8)
            assert len(kubelet.held_devices("ml", "running")) == 1


async def test_pod_that_waits_for_a_dying_kubelet_is_not_lost(short_dir: Path) -> None:
    """An admission that is cut off by the kubelet's end fails the pod that was in it, and takes back those behind."""
    plugin = FakeDevicePlugin()
    plugin.allocate_gate = anyio.Event()  # type: ignore[assignment]  # has the one method that is used
    outcomes: list[str] = []
    async with running_stand_in(short_dir) as under_test, anyio.create_task_group() as tasks:
        kubelet = under_test.kubelet

        async def add(name: str) -> None:
            try:
                await kubelet.add_pod("ml", name, {GPU: 1})
            except (AdmissionRefused, KubeletDown) as error:
                outcomes.append(type(error).__name__)

        async with running_session(plugin, under_test.device_plugins_dir):
            await under_test.wait_offer(GPU, 8, 8)
            tasks.start_soon(add, "first")
            await wait_until(lambda: plugin.asked)
            tasks.start_soon(add, "second")
            await wait_until(lambda: len(kubelet.pods) == 2)
            await kubelet.stop()
            await wait_until(lambda: len(outcomes) == 2)
            plugin.allocate_gate.set()  # type: ignore[union-attr]  # just set
    assert outcomes == ["AdmissionRefused", "KubeletDown"]
    assert [(pod.name, pod.phase) for pod in kubelet.pods] == [("first", PodPhase.FAILED)]


async def test_script_waits_for_a_plugin_and_fills_the_node(short_dir: Path) -> None:
    """Pods stay pending until something offers what they ask for; then they come and go, never more than fit."""
    async with running_stand_in(short_dir) as under_test, anyio.create_task_group() as tasks:
        kubelet = under_test.kubelet
        script = PodScript(kubelet, lanes=4, time_scale=0.0005, seed=3)
        tasks.start_soon(script.run)
        await wait_until(lambda: len(script.pending) == 4)
        assert kubelet.pods == ()
        plugin = FakeDevicePlugin(make_devices(4))
        async with running_session(plugin, under_test.device_plugins_dir):
            await wait_until(lambda: len(plugin.allocated) > 25)
            assert script.refused == 0
        tasks.cancel_scope.cancel()
    assert {len(devices) for devices in plugin.allocated} <= {1, 2, 4}


async def test_script_fills_mig_devices_too(short_dir: Path) -> None:
    """Pods ask for whole GPUs and for MIG devices where the node offers both, for one MIG device each."""
    mig = "nvidia.com/mig-1g.10gb"
    async with running_stand_in(short_dir) as under_test, anyio.create_task_group() as tasks:
        kubelet = under_test.kubelet
        gpus, parts = FakeDevicePlugin(make_devices(2)), FakeDevicePlugin(make_devices(7, prefix="MIG-"), resource=mig)
        sockets = under_test.device_plugins_dir
        async with running_session(gpus, sockets), running_session(parts, sockets, "mig.sock"):
            await under_test.wait_offer(mig, 7, 7)
            tasks.start_soon(PodScript(kubelet, lanes=6, time_scale=0.0005).run)
            await wait_until(lambda: bool(gpus.allocated) and len(parts.allocated) > 10)
        tasks.cancel_scope.cancel()
    assert {len(devices) for devices in parts.allocated} == {1}


async def test_script_goes_on_after_refusals_and_restarts(short_dir: Path) -> None:
    """Refused pods are counted and replaced, and a kubelet restart does not end the story."""
    plugin = FakeDevicePlugin()
    async with running_stand_in(short_dir) as under_test, running_session(plugin, under_test.device_plugins_dir):
        kubelet = under_test.kubelet
        script = PodScript(kubelet, lanes=3, time_scale=0.0005)
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(script.run)
            plugin.refusal = DeviceUnhealthy("GPU-0000", "tired")
            await wait_until(lambda: script.refused)
            plugin.refusal = None
            for _ in range(3):
                count = len(plugin.allocated)
                await wait_until(lambda before=count: len(plugin.allocated) > before)  # type: ignore[misc]
                await kubelet.restart()
            count = len(plugin.allocated)
            await wait_until(lambda: len(plugin.allocated) > count)
            tasks.cancel_scope.cancel()


async def test_script_starts_containers_again_that_find_no_room(short_dir: Path) -> None:
    """As the kubelet does: what they were promised stays theirs meanwhile."""
    plugin = FakeDevicePlugin(make_devices(8), options=PluginOptions(pre_start=True))
    plugin.start_refusal = DeviceUnhealthy("GPU-0000", "no room")
    async with running_stand_in(short_dir) as under_test, running_session(plugin, under_test.device_plugins_dir):
        script = PodScript(under_test.kubelet, lanes=1, time_scale=0.01)
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(script.run)
            await wait_until(lambda: script.refused)
            (pod,) = under_test.kubelet.pods
            assert pod.phase is PodPhase.PENDING
            plugin.start_refusal = None
            await wait_until(lambda: under_test.kubelet.pods[0].phase is PodPhase.RUNNING)
            assert under_test.kubelet.pods[0].uid == pod.uid
            assert len(plugin.allocated) == len(plugin.started) == 1
            tasks.cancel_scope.cancel()


async def test_long_path_is_refused(tmp_path: Path) -> None:
    """A directory that is too deep for sockets is told before anything is served."""
    with pytest.raises(BaseExceptionGroup) as failed:
        async with running_stand_in(tmp_path / ("x" * unix_socket.LONGEST_PATH_BYTES)):
            raise AssertionError("never reached")
    assert failed.group_contains(SocketUnavailable, match="bytes too long")


def run_module(*arguments: str) -> "subprocess.CompletedProcess[str]":
    command = [sys.executable, "-m", "nodeagent_sim.kubelet", *arguments]
    return subprocess.run(command, capture_output=True, text=True, check=False, timeout=50)


def test_help_teaches() -> None:
    """The help of the process of its own shows what it is for and how to use it."""
    done = run_module("--help")
    assert done.returncode == 0
    assert "examples:" in done.stdout
    assert run_module().returncode == 2


async def test_process_of_its_own_measures_a_plugin(short_dir: Path) -> None:
    """In a process of its own the stand-in waits for a plugin, admits pods, and prints how long it took."""
    plugin = FakeDevicePlugin()
    async with running_session(plugin, short_dir / "device-plugins"):
        command = [sys.executable, "-m", "nodeagent_sim.kubelet", "--dir", str(short_dir)]
        done = await anyio.run_process([*command, "--rounds", "20", "--size", "4"])
    report = json.loads(done.stdout)
    assert report["rounds"] == len(plugin.allocated) == 20
    assert 0 < report["prefer_and_allocate_p50_us"] <= report["prefer_and_allocate_p99_us"]


async def test_directories_are_made_private(short_dir: Path) -> None:
    """The directories are made with the modes that the kubelet gives them."""
    kubelet = StandInKubelet(short_dir / "kubelet")
    async with anyio.create_task_group() as tasks:
        await tasks.start(kubelet.run)
        assert stat.S_IMODE(kubelet.plugins_registry_dir.stat().st_mode) == 0o750
        tasks.cancel_scope.cancel()
