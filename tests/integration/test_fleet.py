"""A fleet of real agents at the real API server: what each asks is what the stand-in counts, on which the docs rest."""

import tempfile
from pathlib import Path

import pytest

from tests.bench import reference
from tests.bench.whole import fleet
from tests.integration.cluster.control import Cluster
from tests.integration.cluster.extender import create_node, drop_everything

AGENTS = 40


@pytest.mark.nightly
@pytest.mark.timeout(1800)
def test_a_fleet_asks_no_more_than_the_docs_say(node: Cluster) -> None:
    """Each agent a process of its own, on nodes that exist in the API alone; all of them ask the same."""
    names = tuple(f"fleet-{number:02}" for number in range(AGENTS))
    try:
        for name in names:
            create_node(node, name, {}, {})
        with tempfile.TemporaryDirectory(prefix="nf-") as directory:
            kubeconfig = node.layout.kubeconfig("admin")
            with fleet.running_fleet(names, kubeconfig, Path(directory)) as agents:
                rows = {row.name: row for row in fleet.measure_fleet(agents)}
        told = {row.name: row for row in reference.read().groups["fleet"].rows}
        for name, row in rows.items():
            # A write that the kubelet's or the controllers' own work on the node has overtaken is made once more.
            assert max(row.samples) <= told[name].p99 + 2, (name, row.samples)
        assert max(rows[fleet.QUIET].samples) == 0
    finally:
        drop_everything(node, names)
