"""Values of the model as messages of the device plugin interface, and back. Pure."""

from collections.abc import Iterable
from typing import Final

from nodeagent.edge.kubelet.proto import device_plugin_pb2 as wire
from nodeagent.model.plugin import AdvertisedDevice, ContainerAnswer, PluginOptions

API_VERSION: Final = "v1beta1"


def render_options(options: PluginOptions) -> wire.DevicePluginOptions:
    """The options, for the registration and for the kubelet's question alike."""
    return wire.DevicePluginOptions(
        pre_start_required=options.pre_start, get_preferred_allocation_available=options.preferred_allocation
    )


def render_devices(devices: Iterable[AdvertisedDevice]) -> wire.ListAndWatchResponse:
    """The whole list; a device with an unknown NUMA node carries no topology, because -1 would be refused."""
    # Filled in place: built from parts, 1,600 devices take 5 ms of the event loop instead of 2.
    response = wire.ListAndWatchResponse()
    for device in devices:
        line = response.devices.add(ID=device.id, health="Healthy" if device.healthy else "Unhealthy")
        if device.numa_node is not None and device.numa_node >= 0:
            line.topology.nodes.add(ID=device.numa_node)
    return response


def render_answer(answer: ContainerAnswer, message: wire.ContainerAllocateResponse) -> None:
    """Fill a container's answer into the message for the pod."""
    message.envs.update(answer.environment)
    for mount in answer.mounts:
        message.mounts.add(container_path=mount.container_path, host_path=mount.host_path, read_only=mount.read_only)
    for device in answer.devices:
        message.devices.add(
            container_path=device.container_path, host_path=device.host_path, permissions=device.permissions
        )
    message.annotations.update(answer.annotations)
    for name in answer.cdi_devices:
        message.cdi_devices.add(name=name)
