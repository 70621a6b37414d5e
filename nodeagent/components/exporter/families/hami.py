"""Use of fractions under the metric names of HAMi's monitor, for existing dashboards and alerts; pure.

Served at a separate address and never beside other metrics: use would be counted twice. Metrics of HAMi's own library,
such as a kernel's last time, are absent, and so are the metrics of HAMi's scheduler.
"""

from collections.abc import Callable, Iterable

from nodeagent.components.exporter.serving.exposition import Family, Labels, make_family
from nodeagent.model.gpu import Gpu, Inventory
from nodeagent.model.telemetry import GpuSample, NodeSample
from nodeagent.model.usage import PartUsage, PartUse

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
_OF_PART: tuple[tuple[str, str, Callable[[PartUse], float | None]], ...] = (
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
    usage: PartUsage, inventory: Inventory, sample: NodeSample | None, node: str
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
        *(_make(name, text, [(labels, read(gpu)) for labels, gpu in hosts]) for name, text, read in _OF_GPU),
        *(_make(name, text, [(labels, read(part)) for labels, part in parts]) for name, text, read in _OF_PART),
    )


def _make(name: str, text: str, samples: Iterable[tuple[Labels, float | None]]) -> Family:
    return make_family(name, "gauge", text, [(labels, value) for labels, value in samples if value is not None])


def _name_gpu(node: str, gpu: Gpu) -> Labels:
    return (
        ("node", node),
        ("device_index", str(gpu.index)),
        ("device_uuid", str(gpu.uuid)),
        ("device_type", gpu.name),
    )


def _name_part(namespace: str, pod: str, container: str, number: int, part: PartUse) -> Labels:
    return (
        ("namespace", namespace),
        ("pod", pod),
        ("container", container),
        ("vdevice_index", str(number)),
        ("device_uuid", str(part.gpu)),
    )
