"""What holds between a device plugin and a kubelet, whichever kubelet `open_kubelet` opens.

Each test opens it in its own body, because the task that enters it must leave it.
"""

from collections.abc import Sequence
from contextlib import closing

import anyio
import anyio.lowlevel
from msgspec.structs import replace

from nodeagent.edge.kubelet.checkpoint_file import read_checkpoint
from nodeagent.edge.kubelet.pod_resources import PodResourcesClient
from nodeagent.model.errors import DeviceHeld
from nodeagent.model.plugin import AdvertisedDevice, PluginOptions
from tests.fakes.device_plugin import FakeDevicePlugin, make_devices
from tests.support.waiting import wait_until
from tests.support.wire.kubelets import NAMESPACE, OpenKubelet, running_session

GPU = "nvidia.com/gpu"


def with_sick(devices: Sequence[AdvertisedDevice], *sick: int) -> tuple[AdvertisedDevice, ...]:
    return tuple(replace(device, healthy=number not in sick) for number, device in enumerate(devices))


async def test_plugin_is_registered_and_offered_whole(open_kubelet: OpenKubelet) -> None:
    """A plugin that comes up is registered, says so, and the node offers its devices."""
    async with open_kubelet() as kubelet, running_session(FakeDevicePlugin(), kubelet.device_plugins_dir) as standing:
        await kubelet.wait_offer(GPU, 8, 8)
        await wait_until(lambda: standing.now.devices == make_devices(8))
        assert (standing.now.registered, standing.now.last_error) == (True, "")


async def test_health_follows_both_ways(open_kubelet: OpenKubelet) -> None:
    """Devices that fall ill leave what is allocatable but not the capacity, and come back."""
    plugin = FakeDevicePlugin()
    async with open_kubelet() as kubelet, running_session(plugin, kubelet.device_plugins_dir):
        await kubelet.wait_offer(GPU, 8, 8)
        plugin.set_devices(with_sick(make_devices(8), 0, 3, 7))
        await kubelet.wait_offer(GPU, 8, 5)
        plugin.set_devices(make_devices(8))
        await kubelet.wait_offer(GPU, 8, 8)


async def test_devices_may_come_and_go(open_kubelet: OpenKubelet) -> None:
    """The list may shrink to nothing and grow again without a new registration."""
    plugin = FakeDevicePlugin(make_devices(2))
    async with open_kubelet() as kubelet, running_session(plugin, kubelet.device_plugins_dir) as standing:
        await kubelet.wait_offer(GPU, 2, 2)
        plugin.set_devices(())
        await kubelet.wait_offer(GPU, 0, 0)
        plugin.set_devices(make_devices(16))
        await kubelet.wait_offer(GPU, 16, 16)
        assert not any(report.last_error for report in standing.reports)


async def test_pod_gets_the_devices_that_are_preferred(open_kubelet: OpenKubelet) -> None:
    """The kubelet asks for a preference among all free devices, follows it, and starts the container with them."""
    plugin = FakeDevicePlugin(options=PluginOptions(pre_start=True))
    async with open_kubelet() as kubelet, running_session(plugin, kubelet.device_plugins_dir):
        await kubelet.wait_offer(GPU, 8, 8)
        assert not await kubelet.run_pod("first", {GPU: 2})
        assert not await kubelet.run_pod("second", {GPU: 3})
        await wait_until(lambda: len(plugin.started) == 2)
    ids = [device.id for device in make_devices(8)]
    assert plugin.preferences == [(tuple(ids), (), 2), (tuple(ids[2:]), (), 3)]
    assert [sorted(devices) for devices in plugin.allocated] == [ids[:2], ids[2:5]]
    assert [sorted(devices) for devices in plugin.started] == [ids[:2], ids[2:5]]


async def test_plugin_is_not_asked_what_it_does_not_offer(open_kubelet: OpenKubelet) -> None:
    """Without the options, neither a preference nor a container start is asked about."""
    plugin = FakeDevicePlugin(options=PluginOptions(preferred_allocation=False, pre_start=False))
    async with open_kubelet() as kubelet, running_session(plugin, kubelet.device_plugins_dir):
        await kubelet.wait_offer(GPU, 8, 8)
        assert not await kubelet.run_pod("pod", {GPU: 2})
    assert (plugin.preferences, len(plugin.allocated), plugin.started) == ([], 1, [])


async def test_refusal_reaches_the_pod(open_kubelet: OpenKubelet) -> None:
    """What the plugin says against an allocation is what the user reads, and the devices stay free."""
    plugin = FakeDevicePlugin()
    async with open_kubelet() as kubelet, running_session(plugin, kubelet.device_plugins_dir):
        await kubelet.wait_offer(GPU, 8, 8)
        plugin.refusal = DeviceHeld("GPU-0000", "pod ml/old")
        why = await kubelet.run_pod("refused", {GPU: 8})
        plugin.refusal = None
        assert not await kubelet.run_pod("later", {GPU: 8})
    assert "GPU-0000 is held by pod ml/old" in why
    assert "Allocate failed due to" in why


async def test_kubelet_restart_is_noticed(open_kubelet: OpenKubelet) -> None:
    """After a kubelet restart the plugin registers again with the same devices; what pods hold stays held."""
    plugin = FakeDevicePlugin()
    async with open_kubelet() as kubelet, running_session(plugin, kubelet.device_plugins_dir) as standing:
        await kubelet.wait_offer(GPU, 8, 8)
        assert not await kubelet.run_pod("running", {GPU: 4})
        for _ in range(3):
            await kubelet.restart()
            await kubelet.wait_offer(GPU, 8, 8)
        assert not await kubelet.run_pod("after", {GPU: 4})
        await wait_until(lambda: standing.now.registered)
    first, second = plugin.allocated
    assert not {*first} & {*second}


async def test_kubelet_that_forgets_hands_out_held_devices(open_kubelet: OpenKubelet) -> None:
    """A kubelet without its checkpoint thinks that held devices are free: only the plugin can steer or refuse."""
    plugin = FakeDevicePlugin()
    async with open_kubelet() as kubelet, running_session(plugin, kubelet.device_plugins_dir):
        await kubelet.wait_offer(GPU, 8, 8)
        assert not await kubelet.run_pod("running", {GPU: 4})
        await kubelet.forget()
        await kubelet.wait_offer(GPU, 8, 8)
        assert not await kubelet.run_pod("second", {GPU: 4})
    first, second = plugin.allocated
    assert {*first} == {*second}
    assert {*first} <= {*plugin.preferences[-1][0]}


async def test_plugin_restart_finds_everything_in_place(open_kubelet: OpenKubelet) -> None:
    """A plugin that goes away and comes back is offered again; devices of running pods stay theirs."""
    plugin = FakeDevicePlugin()
    async with open_kubelet() as kubelet:
        async with running_session(plugin, kubelet.device_plugins_dir):
            await kubelet.wait_offer(GPU, 8, 8)
            assert not await kubelet.run_pod("running", {GPU: 4})
        await kubelet.wait_offer(GPU, 8, 0)
        async with running_session(plugin, kubelet.device_plugins_dir):
            await kubelet.wait_offer(GPU, 8, 8)
            assert not await kubelet.run_pod("after", {GPU: 4})
    first, second = plugin.allocated
    assert not {*first} & {*second}


async def test_two_resources_live_side_by_side(open_kubelet: OpenKubelet) -> None:
    """Each resource has its own socket and its own life."""
    gpus = FakeDevicePlugin()
    slices = FakeDevicePlugin(make_devices(3, prefix="MIG-"), resource="nvidia.com/mig-1g.10gb")
    async with open_kubelet() as kubelet, running_session(gpus, kubelet.device_plugins_dir, "gpu.sock"):
        async with running_session(slices, kubelet.device_plugins_dir, "mig.sock"):
            await kubelet.wait_offer(GPU, 8, 8)
            await kubelet.wait_offer("nvidia.com/mig-1g.10gb", 3, 3)
            assert not await kubelet.run_pod("both", {GPU: 1, "nvidia.com/mig-1g.10gb": 2})
        await kubelet.wait_offer("nvidia.com/mig-1g.10gb", 3, 0)
        await kubelet.wait_offer(GPU, 8, 8)


async def test_pod_resources_and_checkpoint_agree_with_the_answers(open_kubelet: OpenKubelet) -> None:
    """Who holds what can be read from the kubelet's account and from its file, and both say what was answered."""
    plugin = FakeDevicePlugin(make_devices(8, numa_nodes=2))
    async with open_kubelet() as kubelet, running_session(plugin, kubelet.device_plugins_dir):
        await kubelet.wait_offer(GPU, 8, 8)
        assert not await kubelet.run_pod("pod-a", {GPU: 3})
        with closing(PodResourcesClient(kubelet.pod_resources_socket)) as account:
            (listed,) = (await account.read_pods()).containers
            allocatable = await account.read_allocatable()
        written_down = await anyio.to_thread.run_sync(read_checkpoint, kubelet.checkpoint_file)
    (written,) = written_down.containers
    assert (listed.pod.namespace, listed.pod.name, listed.resource) == (NAMESPACE, "pod-a", GPU)
    assert {*listed.devices} == {*written.devices} == {*plugin.allocated[0]}
    assert written.pod.uid
    assert {*allocatable.items()} >= {(GPU, frozenset(device.id for device in make_devices(8)))}


async def test_account_survives_kubelet_restarts(open_kubelet: OpenKubelet) -> None:
    """One client of the kubelet's account goes on across restarts, and is not turned away for asking often."""
    plugin = FakeDevicePlugin()
    async with open_kubelet() as kubelet, running_session(plugin, kubelet.device_plugins_dir):
        await kubelet.wait_offer(GPU, 8, 8)
        assert not await kubelet.run_pod("pod-a", {GPU: 3})
        with closing(PodResourcesClient(kubelet.pod_resources_socket)) as account:
            before = await account.read_pods()
            await kubelet.restart()
            after = await account.read_pods()
            for _ in range(30):
                await account.read_pods()
                await anyio.lowlevel.checkpoint()
    assert before == after


async def test_freed_devices_are_seen_as_free(open_kubelet: OpenKubelet) -> None:
    """What a deleted pod has held vanishes from the kubelet's account, and the next pod may have it."""
    plugin = FakeDevicePlugin()
    async with open_kubelet() as kubelet, running_session(plugin, kubelet.device_plugins_dir):
        await kubelet.wait_offer(GPU, 8, 8)
        assert not await kubelet.run_pod("pod-a", {GPU: 8})
        await kubelet.remove_pod("pod-a")
        with closing(PodResourcesClient(kubelet.pod_resources_socket)) as account:
            assert (await account.read_pods()).containers == ()
        assert not await kubelet.run_pod("pod-b", {GPU: 8})
