"""The manifests as they are shipped, judged by the real API server."""

import pytest

from tests.integration.cluster.control import Cluster
from tests.integration.cluster.layout import CHECKOUT

pytestmark = pytest.mark.e2e

MANIFEST = CHECKOUT / "deploy/nodeagent.yaml"
KINDS = (
    "namespace",
    "serviceaccount",
    "configmap",
    "clusterrole",
    "clusterrolebinding",
    "role",
    "rolebinding",
    "daemonset",
    "flowschema",
    "prioritylevelconfiguration",
    "validatingadmissionpolicy",
    "validatingadmissionpolicybinding",
)


def test_api_server_takes_every_object_of_the_manifests(node: Cluster) -> None:
    """Strictly: an unknown or misspelt field anywhere is an error, and nothing is stored."""
    told = node.run("kubectl", "apply", "--dry-run=server", "--validate=strict", "-f", str(MANIFEST))
    lines = told.splitlines()
    assert len(lines) == len(KINDS) + 4, "three of each admission kind, for nodes, their features and their events"
    assert all("server dry run" in line for line in lines), told
    assert {line.partition("/")[0].partition(".")[0] for line in lines} == set(KINDS)
