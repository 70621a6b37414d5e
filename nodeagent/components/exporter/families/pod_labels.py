"""The labels of pods with a GPU, as one info series for each pod; pure.

Owns the Prometheus name of a label's key: the prefix `label_` keeps the name apart from the exporter's own labels.
Refuses pods without a GPU: their labels are other exporters' business.
"""

import re
from collections.abc import Iterator
from functools import lru_cache

from nodeagent.components.exporter.attribution.holders import Holders
from nodeagent.components.exporter.exposition import Family, Labels, gauge
from nodeagent.config.sections.cluster import MetricsSettings
from nodeagent.model.cluster import PodLabels, PodLabelTable

NAME = "nodeagent_pod_labels_info"
_FOREIGN = re.compile(r"[^A-Za-z0-9_]")


def build_pod_label_families(table: PodLabelTable, holders: Holders, metrics: MetricsSettings) -> tuple[Family, ...]:
    """A series for each pod with a device, with the labels of allowed keys."""
    holding = {(one.namespace, one.pod) for each in holders.values() for one in each}
    # A pod and its successor of the same name are one series: the one that the API server tells last.
    chosen = {(one.namespace, one.pod): one for one in table.pods if (one.namespace, one.pod) in holding}
    samples: list[tuple[Labels, float]] = [(_render(one, metrics), 1) for one in chosen.values()]
    return (gauge(NAME, "Labels of each pod that holds a GPU; always 1.", samples),)


def name_label(key: str) -> str:
    """A label's key as a Prometheus label name."""
    return f"label_{_FOREIGN.sub('_', key)}"


def _render(pod: PodLabels, metrics: MetricsSettings) -> Labels:
    names = ("pod_namespace", "pod_name") if metrics.old_namespace_labels else ("namespace", "pod")
    found = dict(_list_allowed(pod, metrics.pod_label_allowlist))
    return (*zip(names, (pod.namespace, pod.pod), strict=True), *sorted(found.items()))


def _list_allowed(pod: PodLabels, allowed: tuple[str, ...]) -> Iterator[tuple[str, str]]:
    """Allowed labels in the order of keys, so that of two keys with one name always the same key counts."""
    for key, value in sorted(pod.labels.items()):
        if not allowed or _fits(key, allowed):
            yield name_label(key), value


@lru_cache(maxsize=4096)
def _fits(key: str, allowed: tuple[str, ...]) -> bool:
    return any(re.search(pattern, key) for pattern in allowed)
