"""What is seen of those who use a GPU, and of what the kubelet was told of its devices; pure."""

from collections.abc import Collection, Iterable

from nodeagent.model.ids import DeviceUuid, GpuUuid
from nodeagent.model.plugin import PluginState
from nodeagent.model.telemetry import NodeSample, ProcessSample
from nodeagent.rules.ids import find_uuid


def list_processes(sample: NodeSample, gpu: GpuUuid) -> tuple[ProcessSample, ...]:
    """The processes on a GPU and on its MIG devices, as of the newest look."""
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
    """Whether no resource shows any of these devices as one that can be had."""
    return not any(
        device.healthy and find_uuid(device.id) in devices
        for resource in state.resources
        for device in resource.devices
    )
