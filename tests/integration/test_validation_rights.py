"""Pods that validate a node are made and deleted as the shipped policies allow, on the real API server."""

from functools import partial
from typing import Any

import pytest

from tests.deploy.chart import pod_of, read_manifest
from tests.integration.cluster.api import Api
from tests.integration.cluster.control import Cluster
from tests.integration.cluster.errors import ApiRefused
from tests.integration.cluster.layout import CHECKOUT
from tests.integration.cluster.processes import wait_until
from tests.integration.test_rights import NAMESPACE, OTHER, OWN, find_refusal, make_pod, new_name, request_token

pytestmark = pytest.mark.e2e
Json = dict[str, Any]
FILES = ("rbac", "rbac-validation", "rbac-fractions", "rbac-refused-pods", "rbac-repairs")
"""With every file whose policies are about pods that are made or deleted."""
VALIDATIONS = f"/api/v1/namespaces/{NAMESPACE}/pods"


@pytest.fixture(scope="module")
def agent(api_server: Cluster) -> Api:
    """The agent by a token of one of two nodes; ready once the policies count."""
    admin = api_server.api
    for name in (OWN, OTHER):
        admin.post("/api/v1/nodes", {"apiVersion": "v1", "kind": "Node", "metadata": {"name": name}})
    for name in FILES:
        api_server.run("kubectl", "apply", "-f", str(CHECKOUT / f"deploy/{name}.yaml"))
    uid = admin.read_node(OWN)["metadata"]["uid"]
    bound = {"boundObjectRef": {"apiVersion": "v1", "kind": "Node", "name": OWN, "uid": uid}}
    made = api_server.api_as(request_token(admin, "nodeagent", bound))
    for request in (
        lambda: made.delete(make_pod(admin, OTHER, namespace=NAMESPACE)),
        lambda: made.post(VALIDATIONS, render_validation(node=OTHER)),
    ):
        wait_until("a policy to count", partial(find_refusal, request), timeout_seconds=30)
    return made


def find_agents_image() -> str:
    """As the shipped manifests have it."""
    (container,) = pod_of(read_manifest())["containers"]
    return str(container["image"])


def render_validation(*, node: str = OWN, label: str = "nodeagent-validation", **container: Any) -> Json:
    """The pod by which an agent validates its node."""
    security = {
        "runAsNonRoot": True,
        "runAsUser": 65534,
        "allowPrivilegeEscalation": False,
        "capabilities": {"drop": ["ALL"]},
    }
    main = {"name": "validation", "image": find_agents_image(), "args": ["gpu", "validate"]}
    spec = {
        "nodeName": node,
        "restartPolicy": "Never",
        "activeDeadlineSeconds": 300,
        "automountServiceAccountToken": False,
        "containers": [main | {"securityContext": security} | container],
    }
    metadata = {"name": new_name(), "labels": {"app.kubernetes.io/name": label}}
    return {"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": spec}


def test_a_validation_is_made_and_deleted_by_the_agent_of_its_node(agent: Api) -> None:
    """As `driver.workload_validation` has it, whatever other rights to delete pods the agent has."""
    pod = render_validation()
    agent.post(VALIDATIONS, pod)
    agent.delete(f"{VALIDATIONS}/{pod['metadata']['name']}")


def _with(**spec: Any) -> Json:
    pod = render_validation()
    return pod | {"spec": pod["spec"] | spec}


@pytest.mark.parametrize(
    ("pod", "reason"),
    [
        (render_validation(node=OTHER), "on its own node alone"),
        (render_validation(label="nodeagent"), "with the label of a validation|it creates none"),
        (render_validation(image="busybox"), "of its own image"),
        (render_validation(args=["uninstall"]), "the one container that validates"),
        (render_validation(command=["sh"]), "the one container that validates"),
        (render_validation(env=[{"name": "LD_PRELOAD", "value": "x"}]), "the one container that validates"),
        (render_validation(securityContext={"privileged": True}), "without rights on their host"),
        (_with(hostPID=True), "without rights on their host"),
        (_with(volumes=[{"name": "root", "hostPath": {"path": "/"}}]), "without rights on their host"),
        (_with(serviceAccountName="nodeagent"), "without rights on their host"),
        (_with(activeDeadlineSeconds=None), "pods that end"),
    ],
)
def test_no_other_pod_is_made(agent: Api, pod: Json, reason: str) -> None:
    """An agent that was taken over gets no further by pods than it is."""
    with pytest.raises(ApiRefused, match=reason):
        agent.post(VALIDATIONS, pod)


def test_no_other_pod_of_the_namespace_is_deleted(api_server: Cluster, agent: Api) -> None:
    """The agents themselves, and validations of other nodes."""
    other = render_validation(node=OTHER)
    api_server.api.post(VALIDATIONS, other)
    for path in (make_pod(api_server.api, OWN, namespace=NAMESPACE), f"{VALIDATIONS}/{other['metadata']['name']}"):
        with pytest.raises(ApiRefused, match="nodeagent deletes only"):
            agent.delete(path)
