"""Use of fractions under the metric names of Tencent's gpu-manager, for existing dashboards; pure.

Served at a separate address and never beside other metrics: use would be counted twice.
"""

from collections.abc import Iterable

from nodeagent.components.exporter.serving.exposition import Family, Labels, make_family
from nodeagent.model.display import DeviceInfo, PodStat

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
        make_family("container_gpu_utilization", "gauge", "Percent of the time on the GPU.", used_time),
        make_family("container_gpu_memory_total", "gauge", "MiB of the GPU in use.", used_memory),
        make_family("container_request_gpu_utilization", "gauge", "GPUs asked for.", wanted_time),
        make_family("container_request_gpu_memory", "gauge", "MiB asked for.", wanted_memory),
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
