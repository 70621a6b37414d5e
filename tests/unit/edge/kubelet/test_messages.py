"""Values of the model as messages of the device plugin interface."""

import pytest

from nodeagent.edge.kubelet.plugin_server import render_answer, render_devices, render_options
from nodeagent.edge.kubelet.plugin_session import LONGEST_PAUSE_SECONDS, plan_pause
from nodeagent.edge.kubelet.proto.device_plugin_pb2 import ContainerAllocateResponse
from nodeagent.model.ids import DeviceId
from nodeagent.model.plugin import (
    AdvertisedDevice,
    ContainerAnswer,
    ContainerDevice,
    ContainerMount,
    PluginOptions,
)


@pytest.mark.parametrize("preferred", [True, False])
@pytest.mark.parametrize("pre_start", [True, False])
def test_options_keep_their_meaning(*, preferred: bool, pre_start: bool) -> None:
    """Each option ends in the field that the kubelet reads it from."""
    rendered = render_options(PluginOptions(preferred_allocation=preferred, pre_start=pre_start))
    assert (rendered.get_preferred_allocation_available, rendered.pre_start_required) == (preferred, pre_start)


@pytest.mark.parametrize(("numa_node", "nodes"), [(None, []), (-1, []), (0, [0]), (3, [3])])
def test_unknown_numa_node_is_left_out(numa_node: int | None, nodes: list[int]) -> None:
    """Node 0 is told, an unknown or negative node is not."""
    (device,) = render_devices([AdvertisedDevice(id=DeviceId("GPU-1"), healthy=True, numa_node=numa_node)]).devices
    assert [node.ID for node in device.topology.nodes] == nodes
    assert device.HasField("topology") == bool(nodes)


def test_list_keeps_order_and_health() -> None:
    """Every device is in the list, in order, with one of the two words the kubelet knows."""
    devices = [AdvertisedDevice(id=DeviceId(f"GPU-{n}"), healthy=n % 2 == 0) for n in range(4)]
    rendered = [(device.ID, device.health) for device in render_devices(devices).devices]
    assert rendered == [("GPU-0", "Healthy"), ("GPU-1", "Unhealthy"), ("GPU-2", "Healthy"), ("GPU-3", "Unhealthy")]


def test_answer_is_carried_whole() -> None:
    """Environment, mounts, device nodes, annotations and CDI names all reach the container."""
    answer = ContainerAnswer(
        environment={"NVIDIA_VISIBLE_DEVICES": "GPU-1"},
        mounts=(ContainerMount(container_path="/c", host_path="/h", read_only=False),),
        devices=(ContainerDevice(container_path="/dev/nvidia0", host_path="/dev/nvidia9", permissions="rwm"),),
        annotations={"cdi.k8s.io/x": "y"},
        cdi_devices=("nvidia.com/gpu=GPU-1",),
    )
    rendered = ContainerAllocateResponse()
    render_answer(answer, rendered)
    (mount,), (device,), (cdi,) = rendered.mounts, rendered.devices, rendered.cdi_devices
    assert dict(rendered.envs) == {"NVIDIA_VISIBLE_DEVICES": "GPU-1"}
    assert (mount.container_path, mount.host_path, mount.read_only) == ("/c", "/h", False)
    assert (device.container_path, device.host_path, device.permissions) == ("/dev/nvidia0", "/dev/nvidia9", "rwm")
    assert dict(rendered.annotations) == {"cdi.k8s.io/x": "y"}
    assert cdi.name == "nvidia.com/gpu=GPU-1"


def test_pauses_grow_to_a_bound() -> None:
    """A first loss is healed within a quarter second, later ones ever slower, never slower than the bound."""
    pauses = [plan_pause(failures) for failures in range(100)]
    assert plan_pause(1) <= 0.25
    assert pauses == sorted(pauses)
    assert max(pauses) == LONGEST_PAUSE_SECONDS
