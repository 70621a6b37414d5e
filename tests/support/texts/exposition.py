"""Reads expositions with the parsers of prometheus-client, the judge of what is written."""

from collections.abc import Iterable

from prometheus_client.metrics_core import Metric
from prometheus_client.openmetrics.parser import text_string_to_metric_families as parse_openmetrics
from prometheus_client.parser import text_string_to_metric_families as parse_text

Series = dict[tuple[str, tuple[tuple[str, str], ...]], float]
"""Name and labels in order of their names, to value."""


def read_text(text: str) -> Series:
    """What Prometheus would read from the text format; fails on a series that is there twice."""
    # The parser adds `_total` to counters that are not called so; Prometheus does not.
    heads = {line.split()[2] for line in text.splitlines() if line.startswith("# TYPE ")}
    return _collect(parse_text(text), heads)


def read_openmetrics(text: str) -> Series:
    """What Prometheus would read from OpenMetrics; fails on a series that is there twice."""
    return _collect(_parse_openmetrics(text), set())


def read_types(text: str) -> dict[str, str]:
    """Name and type of each family in OpenMetrics."""
    return {family.name: family.type for family in _parse_openmetrics(text)}


def _parse_openmetrics(text: str) -> Iterable[Metric]:
    families: Iterable[Metric] = parse_openmetrics(text)  # type: ignore[no-untyped-call]  # untyped in the library
    return families


def _collect(families: Iterable[Metric], heads: set[str]) -> Series:
    found: Series = {}
    for family in families:
        for sample in family.samples:
            name = family.name if family.type == "counter" and family.name in heads else sample.name
            key = name, tuple(sorted(sample.labels.items()))
            assert key not in found, f"twice: {key}"
            found[key] = sample.value
    return found
