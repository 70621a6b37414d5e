"""The readiness of the whole cluster: the condition for `kubectl wait`, and the command, on the real API server."""

import json
import sys

import pytest

from tests.integration.cluster.api import Json
from tests.integration.cluster.control import Cluster
from tests.integration.cluster.errors import CommandFailed
from tests.integration.cluster.layout import NODE_NAME
from tests.integration.deployment import NAMESPACE, Deployment
from tests.integration.host_driver import WORKER_ENVIRONMENT

CONFIG = {"driver": {"worker_environment": WORKER_ENVIRONMENT}}
ENABLED = ("--set", "clusterStatus.enabled=true")
CONDITION = "nodeagent.io/Ready"
DAEMON_SET = f"/apis/apps/v1/namespaces/{NAMESPACE}/daemonsets/nodeagent"
NODE = f"/api/v1/nodes/{NODE_NAME}"
PAUSE = "nvidia.com/gpu.deploy.device-plugin"
NOT_READY = 7


def wait_condition(deployment: Deployment, status: str) -> Json:
    """As a person waits; the condition."""
    deployment.kubectl("wait", "daemonset/nodeagent", f"--for=condition={CONDITION}={status}", "--timeout=90s")
    conditions = deployment.cluster.api.get(DAEMON_SET)["status"]["conditions"]
    (found,) = (each for each in conditions if each["type"] == CONDITION)
    return dict(found)


def ask(deployment: Deployment, *words: str) -> str:
    """The command of this checkout, with an administrator's kubeconfig."""
    return deployment.cluster.run(sys.executable, "-m", "nodeagent", "cluster", "status", *words)


def test_a_person_waits_for_the_whole_cluster_by_one_object(deployment: Deployment, node: Cluster) -> None:
    """Installed, broken, mended: the condition names the node and the reason, and the command says the same."""
    deployment.install(CONFIG, *ENABLED)
    ready = wait_condition(deployment, "true")
    assert (ready["reason"], ready["message"]) == ("AllNodesReady", "1 node is ready: 1 with GPUs, 0 without")
    assert json.loads(ask(deployment, "--json"))["ready"] is True

    node.api.patch(NODE, {"metadata": {"labels": {PAUSE: "paused-for-driver-upgrade"}}})
    try:
        broken = wait_condition(deployment, "false")
        assert broken["reason"] == "NodesNotReady"
        assert broken["message"].startswith(f"1 of 1 node is not ready: {NODE_NAME}: Paused: {PAUSE}")
        with pytest.raises(CommandFailed, match=f"{NODE_NAME} +Paused +kubectl --namespace {NAMESPACE} exec") as failed:
            ask(deployment)
        assert failed.value.status == NOT_READY
    finally:
        node.api.patch(NODE, {"metadata": {"labels": {PAUSE: None}}})
    ask(deployment, "--wait", "90s", "--namespace", NAMESPACE)
    wait_condition(deployment, "true")


def test_the_daemon_set_controller_keeps_the_condition(deployment: Deployment) -> None:
    """It writes its counts into the same status, during a roll-out and after; then the condition is good again."""
    deployment.install(CONFIG, *ENABLED)
    wait_condition(deployment, "true")
    before = deployment.wait_ready()
    deployment.kubectl("rollout", "restart", "daemonset/nodeagent")
    assert wait_condition(deployment, "false")["reason"] in {"NodesNotReady", "AgentsMissing", "RollOutUnderWay"}
    deployment.wait_ready(other_than=before["metadata"]["uid"])
    wait_condition(deployment, "true")


def test_a_condition_that_nobody_keeps_is_unknown(deployment: Deployment) -> None:
    """The program leaves it so when it is stopped, and its successor takes it over."""
    deployment.install(CONFIG, *ENABLED)
    wait_condition(deployment, "true")
    deployment.kubectl("scale", "deployment/nodeagent-cluster-status", "--replicas=0")
    assert wait_condition(deployment, "unknown")["reason"] == "NotWatched"
    deployment.kubectl("scale", "deployment/nodeagent-cluster-status", "--replicas=1")
    wait_condition(deployment, "true")


def test_the_account_may_ask_itself_and_the_agents_may_not(deployment: Deployment) -> None:
    """The command in the program's own pod needs no kubeconfig; an agent's rights are those of its node."""
    deployment.install(CONFIG, *ENABLED)
    deployment.wait_ready()
    wait_condition(deployment, "true")
    words = ("exec", "deployment/nodeagent-cluster-status", "--", "nodeagent", "cluster", "status", "-o", "json")
    found = json.loads(deployment.kubectl(*words))
    assert [each["name"] for each in found["daemon_sets"]] == ["nodeagent"]
    with pytest.raises(CommandFailed, match=r"deploy/rbac-cluster-status\.yaml"):
        deployment.exec("nodeagent", "cluster", "status")
