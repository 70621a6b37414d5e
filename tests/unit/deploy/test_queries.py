"""Dashboards and rules speak of metrics that exist."""

import pytest

from nodeagent.components.exporter.reference import render_reference
from tests.unit.deploy.queries import list_names, read_panels, read_rules

KNOWN = {line.split("`")[1] for line in render_reference().splitlines() if line.startswith("| `")}


@pytest.mark.parametrize(
    ("place", "query"),
    [*read_panels(), *((rule.get("alert", rule.get("record")), rule["expr"]) for rule in read_rules())],
)
def test_every_query_reads_metrics_that_exist(place: str, query: str) -> None:
    """A misspelt name would draw an empty graph, or an alert that never comes."""
    names = list_names(query)
    assert names <= KNOWN, place
    assert names or "up{" in query


def test_every_alert_says_what_to_do() -> None:
    """Whoever is paged reads where, what, and the next step."""
    for rule in read_rules():
        if "alert" in rule:
            assert set(rule["annotations"]) == {"summary", "action"}, rule["alert"]
            assert rule["labels"]["severity"] in {"critical", "warning", "info"}
            assert "{{ $labels." in rule["annotations"]["summary"]
