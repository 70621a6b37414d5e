"""How a kubelet chooses devices and what it writes down of that, whichever kubelet `open_kubelet` opens."""

import base64
import json
from collections.abc import Sequence

import pytest

from nodeagent.edge.kubelet.proto.device_plugin_pb2 import ContainerAllocateResponse
from nodeagent.model.ids import DeviceId
from nodeagent.model.plugin import AdvertisedDevice
from tests.fakes.device_plugin import FakeDevicePlugin, make_devices
from tests.support.wire.kubelets import OpenKubelet, running_session

GPU = "nvidia.com/gpu"
IDS = [device.id for device in make_devices(8)]


class OddPlugin(FakeDevicePlugin):
    """Prefers what the test says."""

    odd: tuple[str, ...] = ()

    def prefer(self, available: Sequence[DeviceId], must_include: Sequence[DeviceId], size: int) -> Sequence[DeviceId]:
        super().prefer(available, must_include, size)
        return tuple(map(DeviceId, self.odd))


@pytest.mark.parametrize(
    ("odd", "kept"),
    [
        ((), 0),
        (("GPU-0007",), 1),
        (("nobody", "GPU-0007", "GPU-0007"), 1),
        (("GPU-0007", "GPU-0006", "GPU-0005"), 2),
    ],
    ids=["nothing", "too few", "unknown and twice", "too many"],
)
async def test_a_preference_is_filled_up_and_cut(open_kubelet: OpenKubelet, odd: tuple[str, ...], kept: int) -> None:
    """What is free of a preference is taken, of too much any; the rest is anything that is free."""
    plugin = OddPlugin()
    plugin.odd = odd
    async with open_kubelet() as kubelet, running_session(plugin, kubelet.device_plugins_dir):
        await kubelet.wait_offer(GPU, 8, 8)
        assert not await kubelet.run_pod("pod", {GPU: 2})
    (given,) = plugin.allocated
    assert len(set(given)) == 2
    assert set(given) <= set(IDS)
    assert len(set(odd) & set(given)) == kept


async def test_all_that_is_free_is_asked_about_too(open_kubelet: OpenKubelet) -> None:
    """Where there is nothing to choose from the plugin is asked all the same."""
    plugin = FakeDevicePlugin()
    async with open_kubelet() as kubelet, running_session(plugin, kubelet.device_plugins_dir):
        await kubelet.wait_offer(GPU, 8, 8)
        assert not await kubelet.run_pod("pod", {GPU: 8})
    assert plugin.preferences == [(tuple(IDS), (), 8)]


async def test_the_checkpoint_has_its_form(open_kubelet: OpenKubelet) -> None:
    """Who holds what by NUMA node, with the answer of the plugin, and the healthy devices of each resource."""
    near = AdvertisedDevice(id=DeviceId("GPU-near"), healthy=True, numa_node=0)
    far = AdvertisedDevice(id=DeviceId("GPU-far"), healthy=True, numa_node=None)
    sick = AdvertisedDevice(id=DeviceId("GPU-sick"), healthy=False, numa_node=0)
    plugin = FakeDevicePlugin((near, far, sick))
    async with open_kubelet() as kubelet, running_session(plugin, kubelet.device_plugins_dir):
        await kubelet.wait_offer(GPU, 3, 2)
        assert not await kubelet.run_pod("pod", {GPU: 2})
        written = json.loads(kubelet.checkpoint_file.read_bytes())
    assert written.keys() == {"Data", "Checksum"}
    assert isinstance(written["Checksum"], int)
    assert written["Data"].keys() == {"PodDeviceEntries", "RegisteredDevices"}
    assert {*written["Data"]["RegisteredDevices"][GPU]} == {"GPU-near", "GPU-far"}
    (entry,) = [each for each in written["Data"]["PodDeviceEntries"] if each["ResourceName"] == GPU]
    assert entry.keys() == {"PodUID", "ContainerName", "ResourceName", "DeviceIDs", "AllocResp"}
    assert entry["ContainerName"] == "main"
    assert entry["DeviceIDs"] == {"0": ["GPU-near"], "-1": ["GPU-far"]}
    answer = ContainerAllocateResponse.FromString(base64.b64decode(entry["AllocResp"]))
    assert {*answer.envs["NVIDIA_VISIBLE_DEVICES"].split(",")} == {"GPU-near", "GPU-far"}
