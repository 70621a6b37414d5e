"""Pods are asked to go as a disruption budget allows, and nobody else waits for its no."""

from pathlib import Path

import anyio
import pytest

from nodeagent.edge.kube.errors import ApiBusy, ApiFailed, ApiForbidden, ApiUnreachable
from nodeagent.edge.kube.evictions import KubeDraining, KubeEvictions
from nodeagent.model.allocation import PodIdentity
from nodeagent.model.cluster import Eviction
from nodeagent.model.drains import BoundPod
from tests.component.edge_kube.harness import open_client
from tests.fakes.apiserver import NODE, FakeApiServer

POD = PodIdentity(namespace="ml", name="train", uid="uid-1")


def add_pod(server: FakeApiServer, uid: str = "uid-1") -> None:
    metadata = {"namespace": "ml", "name": "train", "uid": uid, "labels": {"app": "x"}}
    server.pods["train"] = {"metadata": metadata, "spec": {"nodeName": NODE, "terminationGracePeriodSeconds": 0}}


async def test_a_pod_is_asked_to_go(tmp_path: Path) -> None:
    """By the subresource of evictions, which knows of budgets; asked again, it is gone."""
    async with open_client(tmp_path) as (server, client):
        add_pod(server)
        evictions = KubeEvictions(client, NODE)
        assert await evictions.evict_pod(POD) is Eviction.ASKED
        assert await evictions.evict_pod(POD) is Eviction.GONE
        assert server.writes == [("POST", "/api/v1/namespaces/ml/pods/train/eviction")] * 2
        assert server.bodies[0] == {
            "apiVersion": "policy/v1",
            "kind": "Eviction",
            "metadata": {"name": "train", "namespace": "ml"},
            "deleteOptions": {"preconditions": {"uid": "uid-1"}},
        }


async def test_a_pod_of_the_same_name_that_came_later_is_not_meant(tmp_path: Path) -> None:
    async with open_client(tmp_path) as (server, client):
        add_pod(server, uid="uid-2")
        assert await KubeEvictions(client, NODE).evict_pod(POD) is Eviction.GONE
        assert "train" in server.pods
        nameless = PodIdentity(namespace="ml", name="train")
        assert await KubeEvictions(client, NODE).evict_pod(nameless) is Eviction.ASKED


async def test_a_budget_has_the_last_word_and_holds_up_nobody_else(tmp_path: Path) -> None:
    """Its status is that of too many requests, with a time to come back, which is about this pod alone."""
    async with open_client(tmp_path) as (server, client):
        add_pod(server)
        server.store.budgets.add("x")
        assert await KubeEvictions(client, NODE).evict_pod(POD) is Eviction.BLOCKED
        with anyio.fail_after(5):
            await client.request("GET", f"/api/v1/nodes/{NODE}", attempted="read a node")


@pytest.mark.parametrize(
    "body", [b"", b"too many", b"[]", b'{"details": null}', b'{"details": {"causes": [{"reason": "Other"}]}}']
)
async def test_a_busy_server_is_no_budget(tmp_path: Path, body: bytes) -> None:
    async with open_client(tmp_path) as (server, client):
        server.answer(429, body=body)
        with pytest.raises(ApiBusy):
            await KubeEvictions(client, NODE).evict_pod(POD)


async def test_a_missing_right_is_told(tmp_path: Path) -> None:
    async with open_client(tmp_path) as (server, client):
        server.answer(403)
        with pytest.raises(ApiForbidden, match=r"evict the pod ml/train.*deploy/rbac-mig\.yaml"):
            await KubeEvictions(client, NODE).evict_pod(POD)
        server.answer(403)
        with pytest.raises(ApiForbidden, match=r"list the pods.*deploy/rbac-mig\.yaml"):
            await KubeEvictions(client, NODE).list_pods(("x",))


async def test_pods_of_other_parts_are_listed_by_name(tmp_path: Path) -> None:
    """Of this node alone, by one request."""
    async with open_client(tmp_path) as (server, client):
        add_pod(server)
        evictions = KubeEvictions(client, NODE)
        assert await evictions.list_pods(("x", "y")) == ("ml/train",)
        server.break_off(b'{"items": null}')
        assert await evictions.list_pods(("x",)) == ()
        server.break_off(b'{"items": [{}]}')
        with pytest.raises(ApiUnreachable, match="makes no sense"):
            await evictions.list_pods(("x",))


async def test_a_pod_of_a_drain_is_read_by_metadata(tmp_path: Path) -> None:
    """Whose it is: a DaemonSet makes its pod again, and a file of the node its mirror."""
    async with open_client(tmp_path) as (server, client):
        add_pod(server)
        owner = {"kind": "DaemonSet", "name": "d", "controller": True}
        server.pods["train"]["metadata"] |= {
            "ownerReferences": [{"kind": "X"}, owner],
            "annotations": {"kubernetes.io/config.mirror": "x"},
            "resourceVersion": "5",
        }
        seen = await KubeDraining(client).read_pod(POD)
        assert seen is not None
        assert (seen.pod, seen.controller, seen.is_static, seen.is_going) == (POD, "DaemonSet", True, False)
        server.break_off(b'{"metadata": {}}')
        with pytest.raises(ApiUnreachable, match="makes no sense"):
            await KubeDraining(client).read_pod(POD)


async def test_a_drain_tells_a_missing_right_and_a_busy_server(tmp_path: Path) -> None:
    async with open_client(tmp_path) as (server, client):
        draining, seen = KubeDraining(client), BoundPod(pod=POD, version="1")
        for ask in (lambda: draining.read_pod(POD), lambda: draining.evict(seen), lambda: draining.delete(seen)):
            server.answer(403)
            with pytest.raises(ApiForbidden, match=r"the pod ml/train.*deploy/rbac-repairs\.yaml"):
                await ask()
        server.answer(429, body=b'{"details": {"causes": [{"reason": "DisruptionBudget"}]}}')
        answer = await draining.evict(seen)
        assert (answer.eviction, answer.detail) == (Eviction.BLOCKED, "")
        for status, error in ((429, ApiBusy), (500, ApiFailed)):
            server.answer(status)
            with pytest.raises(error):
                await draining.evict(seen)
