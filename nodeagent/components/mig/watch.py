"""Processes on a GPU, and the devices of a GPU as advertised to the kubelet; pure."""

from collections.abc import Collection, Iterable

from nodeagent.model.ids import DeviceUuid, GpuUuid
from nodeagent.model.plugin import PluginState
from nodeagent.model.telemetry import NodeSample, ProcessSample
from nodeagent.rules.ids import find_uuid


def list_processes(sample: NodeSample, gpu: GpuUuid) -> tuple[ProcessSample, ...]:
    """The processes on a GPU and on its MIG devices, as of the newest sample."""
    return tuple(
        process
        for one in sample.gpus
        if one.uuid == gpu
        for process in (*one.processes, *(process for device in one.mig for process in device.processes))
    )


def find_pids(processes: Iterable[ProcessSample]) -> tuple[int, ...]:
    """Each process once."""
    return tuple(sorted({process.pid for process in processes}))


def is_told(state: PluginState, devices: Collection[DeviceUuid]) -> bool:
    """Whether no resource advertises any of these devices as healthy."""
    return not any(
        device.healthy and find_uuid(device.id) in devices
        for resource in state.resources
        for device in resource.devices
    )
