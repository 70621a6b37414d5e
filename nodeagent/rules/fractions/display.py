"""Utilization in the words of Tencent's gpu-manager; pure.

Owns the translation, for gpu-manager's service and for its metrics alike. As there, a GPU without any known numbers is
left out rather than shown as unused, and so is a pod without any other GPU.
"""

from collections.abc import Iterable
from typing import Final

from nodeagent.model.allocation import PodIdentity
from nodeagent.model.display import ContainerStat, DeviceInfo, Devices, PodStat, Spec
from nodeagent.model.gpu import Gpu, Inventory
from nodeagent.model.ids import GpuUuid
from nodeagent.model.usage import ContainerUse, FractionUsage, FractionUse, UndividedUse
from nodeagent.rules.ids import render_bus_id

MIB: Final = 1 << 20
UNNAMED: Final = ""
"""The container's name for usage that cannot be divided among several containers of a pod."""


def describe_use(usage: FractionUsage, inventory: Inventory) -> tuple[PodStat, ...]:
    """All pods with known usage, in the order of first bindings."""
    gpus = {gpu.uuid: gpu for gpu in inventory.gpus}
    by_pod: dict[PodIdentity, list[ContainerUse]] = {}
    for one in usage.containers:
        by_pod.setdefault(one.pod, []).append(one)
    undivided: dict[PodIdentity, list[UndividedUse]] = {}
    for rest in usage.undivided:
        undivided.setdefault(rest.pod, []).append(rest)
    told = (
        PodStat(pod=pod, stat=_describe_pod(pod, containers, undivided.get(pod, ()), gpus))
        for pod, containers in by_pod.items()
    )
    return tuple(each for each in told if each.stat.stat)


def _describe_pod(
    pod: PodIdentity, containers: Iterable[ContainerUse], rest: Iterable[UndividedUse], gpus: dict[GpuUuid, Gpu]
) -> ContainerStat:
    containers = tuple(containers)
    stat = {one.container: _describe_devices(one.parts, gpus) for one in containers}
    stat[UNNAMED] = _describe_devices(rest, gpus)
    return ContainerStat(
        stat={name: devices for name, devices in stat.items() if devices.dev},
        project=pod.namespace,
        # The pod has both in an environment variable and an annotation: the agent does not read them.
        user="",
        cluster="",
        spec={one.container: _describe_spec(one) for one in containers},
    )


def _describe_devices(uses: Iterable[FractionUse | UndividedUse], gpus: dict[GpuUuid, Gpu]) -> Devices:
    return Devices(
        dev=tuple(
            DeviceInfo(
                id=render_bus_id(gpu.pci.address),
                card_idx=str(gpu.index),
                gpu=float(use.cores_used),
                mem=float(use.memory_used_bytes // MIB),
                pids=use.processes,
                device_mem=float(gpu.memory_total_bytes // MIB),
            )
            for use in uses
            if (gpu := gpus.get(use.gpu)) is not None
            and use.cores_used is not None
            and use.memory_used_bytes is not None
        )
    )


def _describe_spec(one: ContainerUse) -> Spec:
    return Spec(
        gpu=sum(fraction.cores for fraction in one.parts) / 100,
        mem=float(sum(fraction.memory_bytes for fraction in one.parts) // MIB),
    )
