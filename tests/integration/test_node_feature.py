"""NodeFeature objects on the real API server: whose they are, what becomes of them, and what the agent may not write.

The kind is node feature discovery's; of it only what the API server needs to know is installed.
"""

import json
from collections.abc import Iterator

import pytest

from tests.integration.cluster.agent import NAMESPACE, AgentUnderTest, request_token
from tests.integration.cluster.api import Json
from tests.integration.cluster.control import Cluster
from tests.integration.cluster.errors import ApiRefused
from tests.integration.cluster.layout import NODE_NAME
from tests.integration.cluster.pods import render_pod
from tests.integration.conftest import MakeAgent
from tests.integration.node_features import CRD, GROUP, is_served, locate_features
from tests.integration.test_labels import COUNT, labels_of, wait

FEATURES = locate_features(NAMESPACE)
OURS = f"{FEATURES}/nvidia-features-for-{NODE_NAME}"
PODS = f"/api/v1/namespaces/{NAMESPACE}/pods"
DAEMON_SETS = f"/apis/apps/v1/namespaces/{NAMESPACE}/daemonsets"


@pytest.fixture
def features(node: Cluster) -> Iterator[Cluster]:
    """The cluster with the kind installed, and without the DaemonSet that a scenario may have made."""
    node.run("kubectl", "apply", "-f", "-", stdin=json.dumps(CRD))
    node.run("kubectl", "wait", "--for=condition=Established", f"crd/nodefeatures.{GROUP}", "--timeout=30s")
    wait("the kind to be served", lambda: is_served(node, NAMESPACE))
    try:
        yield node
    finally:
        node.api.delete(f"{DAEMON_SETS}/nodeagent")
        node.api.delete(OURS)
        wait("its pods to go", lambda: not node.api.get(PODS)["items"])


def settings(*sinks: str, pod_name: str | None = None) -> dict[str, dict[str, object]]:
    return {
        "labels": {"hold_seconds": 0, "sinks": list(sinks)},
        "kubernetes": {"namespace": NAMESPACE, "pod_name": pod_name},
    }


def make_daemon_set(cluster: Cluster) -> str:
    """A DaemonSet in the agent's name, whose pod is no agent; its name once it runs."""
    pod = render_pod("nodeagent")
    labels = {"app": "nodeagent-owner"}
    template = {"metadata": {"labels": labels}, "spec": {**pod["spec"], "restartPolicy": "Always"}}
    spec = {"selector": {"matchLabels": labels}, "template": template}
    cluster.api.post(DAEMON_SETS, {"metadata": {"name": "nodeagent"}, "spec": spec})
    return wait_pod(cluster)


def wait_pod(cluster: Cluster, *, other_than: str = "") -> str:
    found: list[str] = []

    def look() -> bool:
        items = cluster.api.get(PODS)["items"]
        found[:] = [each["metadata"]["name"] for each in items if "deletionTimestamp" not in each["metadata"]]
        return bool(found) and found != [other_than]

    wait("the DaemonSet's pod", look, timeout_seconds=60)
    return found[0]


def owners_of(feature: Json) -> list[tuple[str, str]]:
    return [(each["kind"], each["name"]) for each in feature["metadata"].get("ownerReferences", ())]


def test_a_node_feature_outlives_its_pod_and_goes_with_the_daemon_set(features: Cluster, make_agent: MakeAgent) -> None:
    """The real collector leaves it while the DaemonSet is there, and takes it with the DaemonSet."""
    first = make_daemon_set(features)
    agent = make_agent(settings=settings("node_feature", pod_name=first))
    wait("the object", lambda: features.api.find(OURS))
    feature = features.api.get(OURS)
    assert feature["spec"]["labels"][COUNT] == "1"
    assert feature["metadata"]["labels"] == {"nfd.node.kubernetes.io/node-name": NODE_NAME}
    assert owners_of(feature) == [("DaemonSet", "nodeagent"), ("Pod", first)]
    assert COUNT not in labels_of(features), "the node's labels are node feature discovery's to write"
    assert agent.stop() == 0
    features.api.delete(f"{PODS}/{first}")
    second = wait_pod(features, other_than=first)
    make_agent(settings=settings("node_feature", pod_name=second))
    wait("the new pod to own it", lambda: owners_of(features.api.get(OURS))[1:] == [("Pod", second)])
    assert features.api.get(OURS)["metadata"]["uid"] == feature["metadata"]["uid"], "it was never away"
    features.api.delete(f"{DAEMON_SETS}/nodeagent")
    wait("the collector", lambda: features.api.find(OURS) is None, timeout_seconds=60)


def test_labels_move_with_the_settings(features: Cluster, make_agent: MakeAgent) -> None:
    """A reload from one place to the other leaves nothing in the first, and so does a restart."""
    agent = make_agent(settings=settings("node_feature"))
    wait("the object", lambda: features.api.find(OURS))
    change_sinks(agent, "node")
    assert agent.run("reload")
    wait("the object to go", lambda: features.api.find(OURS) is None)
    wait("the labels", lambda: labels_of(features).get(COUNT) == "1")
    assert agent.stop() == 0
    make_agent(settings=settings("node_feature"))
    wait("the object", lambda: features.api.find(OURS))
    wait("the labels to go", lambda: COUNT not in labels_of(features))


def change_sinks(agent: AgentUnderTest, *sinks: str) -> None:
    agent.settings = settings(*sinks)
    agent.write_settings()


@pytest.mark.parametrize(
    ("name", "labelled", "reason"),
    [
        ("nvidia-features-for-other", NODE_NAME, "only the NodeFeature object of its own node"),
        (f"nvidia-features-for-{NODE_NAME}", "other", "describes no other node"),
    ],
)
def test_no_other_node_can_be_described(features: Cluster, name: str, labelled: str, reason: str) -> None:
    """An agent that was taken over can lie about its own node alone."""
    agent = features.api_as(request_token(features))
    metadata = {"name": name, "labels": {"nfd.node.kubernetes.io/node-name": labelled}}
    with pytest.raises(ApiRefused, match=reason):
        agent.post(
            FEATURES, {"apiVersion": f"{GROUP}/v1alpha1", "kind": "NodeFeature", "metadata": metadata, "spec": {}}
        )
