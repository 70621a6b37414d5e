"""The cluster itself keeps its promises: right versions, running pods, loopback only, and the shipped rights."""

import pytest

from tests.integration.cluster.agent import request_token
from tests.integration.cluster.api import Json, is_node_ready
from tests.integration.cluster.control import Cluster
from tests.integration.cluster.errors import ApiRefused
from tests.integration.cluster.layout import NODE_NAME
from tests.integration.cluster.leftovers import find_listeners
from tests.integration.cluster.namespace import find_members
from tests.integration.cluster.node import find_stains, reset_node
from tests.integration.cluster.pods import WAIT, Pods, render_pod
from tests.integration.cluster.versions import NEWEST

NODE = f"/api/v1/nodes/{NODE_NAME}"
FORBIDDEN = 403
DENIED_BY_POLICY = 422
NEWEST_KUBERNETES = "1.37"


@pytest.mark.every_version
def test_the_cluster_runs_the_pinned_versions(node: Cluster) -> None:
    """The API server, the kubelet and containerd report the releases that go.mod pins, not unstamped builds."""
    versions, info = node.state.versions, node.api.read_node()["status"]["nodeInfo"]
    served = node.api.get("/version")
    assert served["gitVersion"].startswith(f"v{versions.control_plane}.".replace(NEWEST, NEWEST_KUBERNETES))
    if versions.emulated:
        assert f"{served['emulationMajor']}.{served['emulationMinor']}" == versions.emulated
    assert info["kubeletVersion"].startswith(f"v{versions.kubelet}.".replace(NEWEST, NEWEST_KUBERNETES))
    assert info["containerRuntimeVersion"].startswith(f"containerd://{versions.containerd}.".replace(NEWEST, "2.4"))


@pytest.mark.every_version
def test_a_plain_pod_runs(pods: Pods) -> None:
    """A pod is scheduled, started, entered, read and deleted through the API server."""
    name = pods.run(render_pod("plain", ("sh", "-c", f"echo started; {WAIT}"), environment={"WORD": "hello"}))
    assert pods.exec(name, "sh", "-c", "echo $WORD") == "hello\n"
    assert pods.logs(name) == "started\n"
    pods.delete(name)
    assert pods.names() == ()


def test_a_finished_pod_tells_its_exit_status(pods: Pods) -> None:
    """A command that fails makes the pod Failed, with the status the command had."""
    name = pods.create(render_pod("failing", ("sh", "-c", "exit 7")))
    pod = pods.wait(name, "Failed")
    assert pod["status"]["containerStatuses"][0]["state"]["terminated"]["exitCode"] == 7


def test_all_servers_listen_on_loopback_only(node: Cluster) -> None:
    """Nobody outside this machine can reach any part of the cluster."""
    addresses = find_listeners(find_members(node.layout))
    assert {address for address, _ in addresses} == {"127.0.0.1"}
    assert node.state.ports.api in {port for _, port in addresses}


def test_a_reset_node_is_as_new(node: Cluster) -> None:
    """Labels, resources and plugin files of one scenario never reach the next; Node object and kubelet are new."""
    before = node.api.patch(NODE, {"metadata": {"labels": {"nvidia.com/gpu.count": "8"}}})["metadata"]["uid"]
    node.api.patch(f"{NODE}/status", {"status": {"capacity": {"nvidia.com/gpu": "8"}}})
    (node.layout.device_plugins / "stale.sock").touch()
    assert len(reset_node(node)) == 3
    after = node.api.read_node()
    assert is_node_ready(after)
    assert find_stains(after) == ()
    assert after["metadata"]["uid"] != before
    assert [path.name for path in node.layout.device_plugins.iterdir()] == ["kubelet.sock"]


@pytest.mark.parametrize(
    ("path", "patch"),
    [
        (NODE, {"metadata": {"labels": {"nvidia.com/gpu.count": "8"}}}),
        (NODE, {"metadata": {"annotations": {"nvidia.com/note": "ours"}}}),
        (NODE, {"spec": {"taints": [{"key": "nvidia.com/gpu", "effect": "NoSchedule"}]}}),
        (f"{NODE}/status", {"status": {"conditions": [{"type": "nvidia.com/GPUReady", "status": "True"}]}}),
        (f"{NODE}/status", {"status": {"conditions": [{"type": "devices.nodeagent.io/cards", "status": "True"}]}}),
    ],
    ids=["label", "annotation", "taint", "condition", "condition of other devices"],
)
def test_the_service_account_may_do_what_the_agent_does(node: Cluster, path: str, patch: Json) -> None:
    """With the shipped rights the agent can change what is its own on its own node."""
    node.api_as(request_token(node)).patch(path, patch, kind="strategic")


@pytest.mark.parametrize(
    ("path", "patch"),
    [
        (NODE, {"metadata": {"labels": {"kubernetes.io/os": "other"}}}),
        (NODE, {"metadata": {"labels": {"kubernetes.io/os": None}}}),
        (NODE, {"metadata": {"annotations": {"example.com/note": "foreign"}}}),
        (NODE, {"spec": {"unschedulable": True}}),
        (NODE, {"spec": {"taints": [{"key": "example.com/gpu", "effect": "NoSchedule"}]}}),
        (f"{NODE}/status", {"status": {"conditions": [{"type": "Ready", "status": "False"}]}}),
        (f"{NODE}/status", {"status": {"capacity": {"nvidia.com/gpu": "8"}}}),
    ],
    ids=["label", "label removed", "annotation", "cordon", "taint", "condition", "capacity"],
)
def test_the_service_account_may_not_touch_what_is_foreign(node: Cluster, path: str, patch: Json) -> None:
    """The shipped policy refuses every change of the own node that is not the agent's business."""
    with pytest.raises(ApiRefused, match="nodeagent changes") as refusal:
        node.api_as(request_token(node)).patch(path, patch, kind="strategic")
    assert refusal.value.status == DENIED_BY_POLICY


def test_the_service_account_may_not_touch_another_node(node: Cluster) -> None:
    """A token bound to one node is worth nothing on another."""
    other = {"apiVersion": "v1", "kind": "Node", "metadata": {"name": "other"}}
    node.api.post("/api/v1/nodes", other)
    try:
        with pytest.raises(ApiRefused, match="may not change node other"):
            node.api_as(request_token(node)).patch(
                "/api/v1/nodes/other", {"metadata": {"labels": {"nvidia.com/a": "b"}}}
            )
    finally:
        node.api.delete("/api/v1/nodes/other")


def test_an_unbound_token_may_change_nothing(node: Cluster) -> None:
    """A token that names no node, as a leaked long-lived one, cannot change any node."""
    token = node.run("kubectl", "create", "token", "nodeagent", "-n", "nodeagent").strip()
    with pytest.raises(ApiRefused, match="not bound to a node"):
        node.api_as(token).patch(NODE, {"metadata": {"labels": {"nvidia.com/gpu.count": "8"}}})


@pytest.mark.parametrize(
    "path", ["/api/v1/pods", "/api/v1/secrets", "/api/v1/namespaces/nodeagent/secrets", "/api/v1/configmaps"]
)
def test_the_service_account_may_not_read_what_it_does_not_need(node: Cluster, path: str) -> None:
    """The agent knows its pods from the kubelet; it cannot read them, or any secret, from the API server."""
    with pytest.raises(ApiRefused) as refusal:
        node.api_as(request_token(node)).get(path)
    assert refusal.value.status == FORBIDDEN
