"""Series by pod: held devices and their use; pure.

The names differ from the device series, so that a sum over a device never counts a pod's use twice.
"""

from collections.abc import Callable, Mapping, Sequence

from nodeagent.components.exporter.attribution.device_labels import list_instance_labels, name_holder
from nodeagent.components.exporter.attribution.pod_accounts import ContainerUsage, Usage
from nodeagent.components.exporter.catalogue.field import Entity
from nodeagent.components.exporter.exposition import Family, Labels, MetricType, make_family
from nodeagent.config.sections.cluster import MetricsSettings


def _round(total: float | None) -> float | None:
    """Thousandths say all there is to say, in fewer digits."""
    return None if total is None else round(total, 3)


_FAMILIES: tuple[tuple[str, MetricType, str, Callable[[Usage], float | None]], ...] = (
    (
        "nodeagent_pod_gpu_memory_used_bytes",
        "gauge",
        "Memory of the device that processes of the container use.",
        lambda usage: usage.memory_used_bytes,
    ),
    (
        "nodeagent_pod_gpu_sm_ratio",
        "gauge",
        "Part of the time in which processes of the container ran on the SMs.",
        lambda usage: usage.sm_ratio,
    ),
    (
        "nodeagent_pod_gpu_energy_joules_total",
        "counter",
        "Energy of the device that falls to the container, by its SM time.",
        lambda usage: _round(usage.energy_joules),
    ),
    (
        "nodeagent_pod_gpu_held_seconds_total",
        "counter",
        "Time for which the container has held the device, as seen by this agent.",
        lambda usage: _round(usage.held_seconds),
    ),
    (
        "nodeagent_pod_gpu_idle_seconds_total",
        "counter",
        "Part of that time in which the device did nothing for it.",
        lambda usage: _round(usage.idle_seconds),
    ),
)


def build_pod_families(
    usages: Mapping[ContainerUsage, Usage], devices: Sequence[Entity], metrics: MetricsSettings
) -> tuple[Family, ...]:
    """All families by pod, a series for each container and device."""
    pairs = {(entity.gpu.uuid, entity.gpu_instance_id): _list_device(entity) for entity in devices}
    labels: list[tuple[Labels, Usage]] = [
        ((*pairs[share.gpu, share.gpu_instance_id], *name_holder(share.holder, metrics).items()), usage)
        for share, usage in usages.items()
    ]
    return tuple(
        make_family(name, kind, text, [(one, read(usage)) for one, usage in labels])
        for name, kind, text, read in _FAMILIES
    )


def _list_device(entity: Entity) -> list[tuple[str, str]]:
    return [("gpu", str(entity.gpu.index)), ("UUID", str(entity.gpu.uuid)), *list_instance_labels(entity)]
