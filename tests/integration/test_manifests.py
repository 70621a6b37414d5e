"""The manifests as they are shipped, judged by the real API server."""

from pathlib import Path

import pytest
import yaml

from tests.deploy.chart import needs_helm, render_objects
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


DRIVER = {
    "driver": {
        "enabled": True,
        "repository": "registry.example/nvidia",
        "os": "ubuntu24.04",
        "rdma": {"enabled": True},
        "mounts": [{"configMap": "sources", "mountPath": "/etc/apt/sources.list.d"}],
        "groups": [
            {"name": "built", "nodeSelector": {"pool": "a"}, "version": "570.172.08", "secretEnv": "proxy"},
            {
                "name": "precompiled",
                "nodeSelector": {"pool": "b"},
                "version": "580",
                "usePrecompiled": True,
                "kernel": "6.8.0-71-generic",
            },
        ],
    }
}


@needs_helm
def test_api_server_takes_the_pods_that_bring_the_driver(node: Cluster, tmp_path: Path) -> None:
    """With all that a group of nodes can be given."""
    values, manifest = tmp_path / "values.yaml", tmp_path / "driver.yaml"
    values.write_text(yaml.safe_dump(DRIVER))
    objects = {name: each for name, each in render_objects("-f", str(values)).items() if "driver" in name[1]}
    for each in objects.values():
        each["metadata"]["namespace"] = "default"  # the release's own is not there yet
    manifest.write_text(yaml.safe_dump_all(objects.values()))
    told = node.run("kubectl", "apply", "--dry-run=server", "--validate=strict", "-f", str(manifest)).splitlines()
    assert sorted(line.split()[0] for line in told) == [
        "configmap/nodeagent-driver",
        "daemonset.apps/nodeagent-driver-built",
        "daemonset.apps/nodeagent-driver-precompiled",
        "serviceaccount/nodeagent-driver",
    ]
    assert all("server dry run" in line for line in told)
