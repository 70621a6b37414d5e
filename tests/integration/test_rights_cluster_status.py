"""What the shipped rights and policy let the publisher of the cluster's readiness write, on the real API server."""

from functools import partial

import pytest

from tests.integration.cluster.api import Api
from tests.integration.cluster.control import Cluster
from tests.integration.cluster.errors import ApiRefused
from tests.integration.cluster.layout import CHECKOUT
from tests.integration.cluster.processes import wait_until
from tests.integration.test_rights import (
    DENIED_BY_POLICY,
    FINALIZERS,
    NAMESPACE,
    OWNERS,
    Json,
    annotate,
    find_refusal,
    new_name,
    request_token,
)

FORBIDDEN = 403
DAEMON_SETS = f"/apis/apps/v1/namespaces/{NAMESPACE}/daemonsets"
DAEMON_SET = f"{DAEMON_SETS}/nodeagent"


@pytest.fixture(scope="module")
def publisher(api_server: Cluster) -> Api:
    """The program's account, beside a DaemonSet as the agents'; ready once the policy counts."""
    admin = api_server.api
    for name in ("rbac", "rbac-cluster-status"):
        api_server.run("kubectl", "apply", "-f", str(CHECKOUT / f"deploy/{name}.yaml"))
    make_daemon_set(admin, "nodeagent")
    api = api_server.api_as(request_token(admin, "nodeagent-cluster-status", {}))

    def request() -> None:
        """A change, each time another: one that is taken before the policy counts is no change the next time."""
        api.patch(f"{DAEMON_SET}/status", annotate("example.com/x", new_name()))

    wait_until("the policy to count", partial(find_refusal, request), timeout_seconds=30)
    return api


def make_daemon_set(admin: Api, name: str) -> str:
    """A DaemonSet that no node takes; its path."""
    labels = {"app.kubernetes.io/name": "nodeagent"}
    spec = {"nodeSelector": {"no": "node"}, "containers": [{"name": "main", "image": "none"}]}
    template = {"metadata": {"labels": labels}, "spec": spec}
    document = {"apiVersion": "apps/v1", "kind": "DaemonSet", "metadata": {"name": name, "labels": labels}}
    admin.post(DAEMON_SETS, document | {"spec": {"selector": {"matchLabels": labels}, "template": template}})
    return f"{DAEMON_SETS}/{name}"


def render_condition() -> Json:
    condition = {"type": "nodeagent.io/Ready", "status": "False", "reason": "r", "message": new_name()}
    return {"status": {"conditions": [condition]}}


def test_the_condition_is_written_and_what_it_follows_from_is_read(api_server: Cluster, publisher: Api) -> None:
    """All nodes, and DaemonSets and pods beside the program; no pods of other namespaces."""
    written = render_condition()
    publisher.patch(f"{DAEMON_SET}/status", written)
    (found,) = api_server.api.get(DAEMON_SET)["status"]["conditions"]
    assert found["message"] == written["status"]["conditions"][0]["message"]
    for path in ("/api/v1/nodes", DAEMON_SETS, f"/api/v1/namespaces/{NAMESPACE}/pods"):
        assert "items" in publisher.get(path)
    for path in ("/api/v1/pods", "/apis/apps/v1/daemonsets", f"/api/v1/namespaces/{NAMESPACE}/secrets"):
        with pytest.raises(ApiRefused) as refusal:
            publisher.get(path)
        assert refusal.value.status == FORBIDDEN


@pytest.mark.parametrize(
    "patch",
    [
        FINALIZERS,
        OWNERS,
        {"metadata": {"labels": {"a": "b"}}},
        {"status": {"numberReady": 7}},
        {"status": {"conditions": [{"type": "Another", "status": "True"}]}},
    ],
    ids=["finalizer", "owner", "label", "count", "condition"],
)
def test_nothing_of_the_daemon_set_but_one_condition_is_written(
    api_server: Cluster, publisher: Api, patch: Json
) -> None:
    """A made-up owner would have the garbage collector delete the DaemonSet, a made-up finalizer would keep it."""
    before = api_server.api.get(DAEMON_SET)
    with pytest.raises(ApiRefused, match="nodeagent-cluster-status changes nothing") as refusal:
        publisher.patch(f"{DAEMON_SET}/status", patch)
    assert refusal.value.status == DENIED_BY_POLICY
    assert api_server.api.get(DAEMON_SET) == before


def test_no_other_daemon_set_and_no_specification_is_written(api_server: Cluster, publisher: Api) -> None:
    other = make_daemon_set(api_server.api, new_name())
    for path in (f"{other}/status", DAEMON_SET):
        with pytest.raises(ApiRefused) as refusal:
            publisher.patch(path, render_condition())
        assert refusal.value.status == FORBIDDEN
