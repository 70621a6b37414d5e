"""Labels of pods as metrics, from the real API server, with and without the right to read them."""

from tests.integration.cluster.control import Cluster
from tests.integration.cluster.layout import CHECKOUT
from tests.integration.cluster.pods import Pods, render_pod
from tests.integration.conftest import MakeAgent
from tests.integration.test_labels import wait

RIGHTS = CHECKOUT / "deploy" / "rbac-pod-labels.yaml"
SERIES = "nodeagent_pod_labels_info{"
SETTINGS = {"metrics": {"pod_labels": True, "pod_label_allowlist": ["^team$", "^app"]}}


def test_labels_of_pods_that_hold_gpus_are_shown_with_the_right_to_read_them(
    node: Cluster, pods: Pods, make_agent: MakeAgent
) -> None:
    """Without it the condition names it; with it the pod's labels appear, change, and go with the pod."""
    agent = make_agent(settings=SETTINGS)
    refused = 'nodeagent_api_requests_total{code="403",verb="GET"}'
    wait("the refusal", lambda: refused in agent.get("/metrics")[1])
    node.run("kubectl", "apply", "-f", str(RIGHTS))
    try:
        manifest = render_pod("labelled", limits={"nvidia.com/gpu": 1})
        manifest["metadata"]["labels"] = {"team": "blue", "app.kubernetes.io/name": "train", "other": "x"}
        name = pods.run(manifest)
        pods.run(render_pod("idle"))
        line = f'{SERIES}namespace="default",pod="{name}",label_app_kubernetes_io_name="train",label_team="blue"}} 1'
        wait("the labels", lambda: line in agent.get("/metrics")[1], timeout_seconds=60)
        assert agent.get("/metrics")[1].count(SERIES) == 1, "a pod without a GPU is none of ours"
        node.api.patch(f"/api/v1/namespaces/default/pods/{name}", {"metadata": {"labels": {"team": "red"}}})
        wait("the change", lambda: 'label_team="red"' in agent.get("/metrics")[1])
        node.api.delete(f"/api/v1/namespaces/default/pods/{name}")
        wait("the series to go", lambda: SERIES not in agent.get("/metrics")[1], timeout_seconds=60)
    finally:
        node.run("kubectl", "delete", "-f", str(RIGHTS))
