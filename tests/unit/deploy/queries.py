"""Every query of the dashboards and rules that nodeagent comes with."""

import json
import re
from pathlib import Path
from typing import Any

import yaml

ROOT = Path(__file__).parents[3]
RULES_FILE = ROOT / "deploy/alerts/nodeagent-rules.yaml"
DASHBOARDS = ROOT / "deploy/dashboards"
METRIC = re.compile(r"\b(DCGM_\w+|nodeagent_\w+|gpu_operator_\w+|process_\w+)\b")


def read_rules() -> list[dict[str, Any]]:
    return [rule for group in yaml.safe_load(RULES_FILE.read_text())["groups"] for rule in group["rules"]]


def read_panels() -> list[tuple[str, str]]:
    """Where a query stands, and the query."""
    found = []
    for file in sorted(DASHBOARDS.glob("*.json")):
        page = json.loads(file.read_text())
        found += [
            (f"{file.stem}: {panel['title']}", target["expr"])
            for panel in page["panels"]
            for target in panel["targets"]
        ]
    return found


def list_names(query: str) -> set[str]:
    """The metrics that a query reads; recorded ones, with colons in their names, are not among them."""
    return set(METRIC.findall(re.sub(r"\w+:\w+(:\w+)?", "", query)))
