"""Fractions: promised and used compute and memory by container; pure.

Promises have series as long as the binding; use has series only while the use is known.
"""

from collections.abc import Callable, Mapping

from nodeagent.components.exporter.attribution.device_labels import name_holder
from nodeagent.components.exporter.attribution.holders import Holder
from nodeagent.components.exporter.exposition import Family, Labels, counter, gauge
from nodeagent.config.sections.cluster import MetricsSettings
from nodeagent.model.usage import ContainerUse, FractionUsage, FractionUse, UndividedUse

_HUNDREDTH = 100


def _ratio(cores: int | None) -> float | None:
    return None if cores is None else cores / _HUNDREDTH


_PROMISED: tuple[tuple[str, str, Callable[[FractionUse], float | None]], ...] = (
    (
        "nodeagent_fraction_cores_ratio",
        "Part of the GPU's compute that the container is promised.",
        lambda part: _ratio(part.cores),
    ),
    (
        "nodeagent_fraction_cores_max_ratio",
        "Part of the GPU's compute that the container may use while nobody else does, where that is more.",
        lambda part: _ratio(part.cores_max),
    ),
    (
        "nodeagent_fraction_memory_bytes",
        "Memory of the GPU that the container is promised.",
        lambda part: part.memory_bytes,
    ),
)
_USED: tuple[tuple[str, str, Callable[[FractionUse | UndividedUse], float | None]], ...] = (
    (
        "nodeagent_fraction_cores_used_ratio",
        "Part of the time in which processes of the container ran on the GPU.",
        lambda use: _ratio(use.cores_used),
    ),
    (
        "nodeagent_fraction_memory_used_bytes",
        "Memory of the GPU that processes of the container use.",
        lambda use: use.memory_used_bytes,
    ),
    (
        "nodeagent_fraction_processes",
        "Processes of the container on the GPU.",
        lambda use: None if use.cores_used is None and use.memory_used_bytes is None else len(use.processes),
    ),
)


def build_fraction_families(
    usage: FractionUsage, metrics: MetricsSettings, overruled: Mapping[str, int] | None = None
) -> tuple[Family, ...]:
    """All families about fractions, a series for each container and GPU, once the pod's name is known."""
    usage = usage.named
    parts = [(_label(one, part, metrics), part) for one in usage.containers for part in one.parts]
    uses: list[tuple[Labels, FractionUse | UndividedUse]] = [
        *parts,
        *((_label(one, one, metrics), one) for one in usage.undivided),
    ]
    info = [((*_list_names(one, metrics), ("enforcement", str(one.enforcement))), 1.0) for one in usage.containers]
    return (
        *(gauge(name, text, [(labels, read(part)) for labels, part in parts]) for name, text, read in _PROMISED),
        *(gauge(name, text, [(labels, read(use)) for labels, use in uses]) for name, text, read in _USED),
        counter(
            "nodeagent_fraction_choices_overruled_total",
            "Schedulers' choices that were not obeyed, by reason: unreadable on this node, or impossible.",
            [((("reason", reason),), float(count)) for reason, count in sorted((overruled or {}).items())],
        ),
        gauge("nodeagent_fraction_info", "1 for each container with parts: what keeps it to them.", info),
    )


def _label(one: ContainerUse | UndividedUse, use: FractionUse | UndividedUse, metrics: MetricsSettings) -> Labels:
    index = (("gpu", str(use.index)),) if use.index is not None else ()
    return (*index, ("UUID", str(use.gpu)), *_list_names(one, metrics))


def _list_names(one: ContainerUse | UndividedUse, metrics: MetricsSettings) -> Labels:
    """Pod and container; no container label where the pod's containers cannot be told apart."""
    container = one.container if isinstance(one, ContainerUse) else ""
    holder = Holder(namespace=one.pod.namespace, pod=one.pod.name, container=container, uid=one.pod.uid)
    return tuple((name, text) for name, text in name_holder(holder, metrics).items() if text)
