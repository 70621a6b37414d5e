"""Use of fractions under the metric names of Tencent's gpu-manager and of HAMi's monitor, for their dashboards; pure.

Served at a separate address and never beside other metrics: use would be counted twice. Metrics of HAMi's own library,
such as a kernel's last time, are absent, and so are the metrics of HAMi's scheduler.
"""

from collections.abc import Callable, Iterable

from nodeagent.components.exporter.exposition import Family, Labels, gauge
from nodeagent.model.display import DeviceInfo, PodStat
from nodeagent.model.gpu import Gpu, Inventory
from nodeagent.model.telemetry import GpuSample, NodeSample
from nodeagent.model.usage import FractionUsage, FractionUse

TOTAL = "total"
_Samples = list[tuple[Labels, float]]


def build_gpu_manager_families(pods: Iterable[PodStat], node: str) -> tuple[Family, ...]:
    """All four."""
    used_time: _Samples = []
    used_memory: _Samples = []
    wanted_time: _Samples = []
    wanted_memory: _Samples = []
    for pod in pods:
        for container, devices in pod.stat.stat.items():
            labels = _name(pod, node, container)
            for gpu, one in (*((f"gpu{each.card_idx}", each) for each in devices.dev), (TOTAL, _add(devices.dev))):
                used_time.append(((*labels, ("gpu", gpu)), one.gpu))
                used_memory.append(((*labels, ("gpu_memory", gpu)), one.mem))
        for container, spec in pod.stat.spec.items():
            labels = _name(pod, node, container)
            wanted_time.append(((*labels, ("req_of_gpu", TOTAL)), spec.gpu))
            wanted_memory.append(((*labels, ("req_of_gpu_memory", TOTAL)), spec.mem))
    return (
        gauge("container_gpu_utilization", "Percent of the time on the GPU.", used_time),
        gauge("container_gpu_memory_total", "MiB of the GPU in use.", used_memory),
        gauge("container_request_gpu_utilization", "GPUs asked for.", wanted_time),
        gauge("container_request_gpu_memory", "MiB asked for.", wanted_memory),
    )


def _name(pod: PodStat, node: str, container: str) -> Labels:
    return (
        ("pod_name", pod.pod.name),
        ("namespace", pod.pod.namespace),
        ("node", node),
        ("container_name", container),
    )


def _add(devices: Iterable[DeviceInfo]) -> DeviceInfo:
    devices = tuple(devices)
    return DeviceInfo(
        id="",
        card_idx="",
        gpu=sum(each.gpu for each in devices),
        mem=sum(each.mem for each in devices),
        pids=(),
        device_mem=0.0,
    )


_OF_GPU: tuple[tuple[str, str, Callable[[GpuSample], float | None]], ...] = (
    ("hami_host_gpu_memory_used_bytes", "Memory of the GPU in use.", lambda gpu: gpu.memory_used_bytes),
    (
        "hami_host_gpu_utilization_ratio",
        "Percent of the time in which the GPU worked.",
        lambda gpu: gpu.gpu_utilization_percent,
    ),
    (
        "hami_host_gpu_memory_controller_utilization_ratio",
        "Percent of the time in which memory of the GPU was read or written.",
        lambda gpu: gpu.memory_utilization_percent,
    ),
)
_OF_PART: tuple[tuple[str, str, Callable[[FractionUse], float | None]], ...] = (
    (
        "hami_vgpu_memory_used_bytes",
        "Memory of the GPU that the container uses.",
        lambda part: part.memory_used_bytes,
    ),
    (
        "hami_vgpu_memory_limit_bytes",
        "Memory of the GPU that the container is promised.",
        lambda part: part.memory_bytes,
    ),
    (
        "hami_container_device_memory_bytes",
        "Memory of the GPU that the container uses.",
        lambda part: part.memory_used_bytes,
    ),
    (
        "hami_container_device_utilization_ratio",
        "Percent of the time in which the container ran on the GPU.",
        lambda part: part.cores_used,
    ),
)


def build_hami_families(
    usage: FractionUsage, inventory: Inventory, sample: NodeSample | None, node: str
) -> tuple[Family, ...]:
    """The available families of HAMi's monitor; an unknown value has no series."""
    gpus = {gpu.uuid: gpu for gpu in inventory.gpus}
    hosts = [
        (_name_gpu(node, gpus[each.uuid]), each)
        for each in (sample.gpus if sample is not None else ())
        if each.uuid in gpus
    ]
    parts = [
        (_name_part(one.pod.namespace, one.pod.name, one.container, number, part), part)
        for one in usage.named.containers
        for number, part in enumerate(one.parts)
    ]
    return (
        *(gauge(name, text, [(labels, read(gpu)) for labels, gpu in hosts]) for name, text, read in _OF_GPU),
        *(gauge(name, text, [(labels, read(part)) for labels, part in parts]) for name, text, read in _OF_PART),
    )


def _name_gpu(node: str, gpu: Gpu) -> Labels:
    return (
        ("node", node),
        ("device_index", str(gpu.index)),
        ("device_uuid", str(gpu.uuid)),
        ("device_type", gpu.name),
    )


def _name_part(namespace: str, pod: str, container: str, number: int, part: FractionUse) -> Labels:
    return (
        ("namespace", namespace),
        ("pod", pod),
        ("container", container),
        ("vdevice_index", str(number)),
        ("device_uuid", str(part.gpu)),
    )
