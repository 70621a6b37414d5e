"""What the harness makes of API objects, and what it writes for the agent under test."""

from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.integration.cluster.agent import Settings, render_settings
from tests.integration.cluster.api import is_node_ready
from tests.integration.cluster.layout import Layout
from tests.integration.cluster.node import find_stains, find_strange_files
from tests.integration.cluster.pods import has_reached, render_pod

LAYOUT = Layout(Path("/tmp/place"))


def make_node(*, ready: str = "True", taint: str | None = None, **metadata: dict[str, str]) -> dict[str, Any]:
    return {
        "metadata": metadata,
        "spec": {"taints": [{"key": taint}]} if taint else {},
        "status": {"conditions": [{"type": "Ready", "status": ready}], "capacity": {"cpu": "2"}},
    }


@pytest.mark.parametrize(
    ("node", "expected"),
    [
        (make_node(), True),
        (make_node(ready="Unknown"), False),
        (make_node(taint="node.kubernetes.io/not-ready"), False),
        (make_node(taint="nvidia.com/gpu"), True),
        ({"spec": {}}, False),
    ],
)
def test_a_node_is_ready_when_pods_can_come(node: dict[str, Any], expected: bool) -> None:
    """Ready, and without the taints that the control plane takes off when it has noticed."""
    assert is_node_ready(node) is expected


def test_a_new_node_has_no_stains() -> None:
    assert find_stains(make_node(labels={"kubernetes.io/os": "linux"})) == ()


def test_every_kind_of_stain_is_seen() -> None:
    """Labels, annotations, resources, conditions and taints of a scenario are all found."""
    node = make_node(taint="any", labels={"nvidia.com/a": ""}, annotations={"nvidia.com/b": ""})
    node["status"]["capacity"]["nvidia.com/gpu"] = "8"
    node["status"]["conditions"].append({"type": "nvidia.com/GPUReady", "status": "True"})
    kinds = [stain.split()[0] for stain in find_stains(node)]
    assert kinds == ["label", "annotation", "resource", "condition", "taint"]


def test_the_kubelets_own_files_are_not_strange(tmp_path: Path) -> None:
    """Its socket belongs there; a plugin's socket and the checkpoint that remembers devices do not."""
    for name in ("kubelet.sock", "nvidia.sock", "kubelet_internal_checkpoint"):
        (tmp_path / name).touch()
    strange = [Path(each).name for each in find_strange_files([tmp_path])]
    assert strange == ["kubelet_internal_checkpoint", "nvidia.sock"]


def test_a_pod_asks_for_gpus_and_dies_soon() -> None:
    """Limits become the text the API wants, and the grace period is short but not zero."""
    pod = render_pod("name", limits={"nvidia.com/gpu": 2}, environment={"A": "b"}, spec={"nodeName": "here"})
    container = pod["spec"]["containers"][0]
    assert container["resources"] == {"limits": {"nvidia.com/gpu": "2"}}
    assert container["env"] == [{"name": "A", "value": "b"}]
    assert pod["spec"]["terminationGracePeriodSeconds"] == 1
    assert pod["spec"]["nodeName"] == "here"


@pytest.mark.parametrize(
    ("status", "phase", "expected"),
    [
        ({"phase": "Running", "containerStatuses": [{"state": {"running": {}}}]}, "Running", True),
        ({"phase": "Running", "containerStatuses": [{"state": {"waiting": {}}}]}, "Running", False),
        ({"phase": "Running"}, "Running", False),
        ({"phase": "Failed"}, "Failed", True),
        ({}, "Running", False),
    ],
)
def test_a_pod_runs_when_its_container_does(status: dict[str, Any], phase: str, expected: bool) -> None:
    """The phase alone is not enough for Running; for the end it is."""
    assert has_reached({"status": status}, phase) is expected


def test_the_agent_is_told_everything_about_its_cluster() -> None:
    """Paths are the cluster's, the web port is on loopback, and a scenario's own settings win key by key."""
    extra: Settings = {"kubelet": {"root_dir": "/elsewhere"}, "health": {"poll_seconds": 1}}
    settings = yaml.safe_load(render_settings(LAYOUT, 9400, "simulated:t4", extra))
    assert settings["gpus"] == {"source": "simulated:t4"}
    assert settings["http"] == {"listen": "127.0.0.1:9400"}
    assert settings["kubelet"]["root_dir"] == "/elsewhere"
    assert settings["kubelet"]["device_plugins_dir"] == "/tmp/place/lib/kubelet/device-plugins"
    assert settings["health"] == {"poll_seconds": 1}
    assert settings["node"]["state_dir"].startswith("/tmp/place/agent/")
