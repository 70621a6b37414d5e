"""Pods of this node that have not started, followed and deleted on a server on loopback."""

from collections.abc import AsyncIterator
from contextlib import aclosing, asynccontextmanager
from copy import deepcopy
from functools import partial
from pathlib import Path
from random import Random
from typing import Any

import pytest
from msgspec.structs import replace

from nodeagent.core.log.audit import DONE, Change, keeping
from nodeagent.edge.kube.errors import ApiBusy, ApiForbidden, ApiUnreachable
from nodeagent.edge.kube.pods import KubeUnstartedPods
from nodeagent.model.allocation import PodIdentity
from nodeagent.model.cluster import UnstartedContainer, UnstartedPod
from tests.component.edge_kube.harness import open_client, take
from tests.fakes.apiserver import NODE, FakeApiServer

PATH = "/api/v1/namespaces/ml/pods/a"
OWNERS = [{"kind": "ConfigMap", "name": "c"}, {"kind": "StatefulSet", "name": "s", "controller": True}]


def make_pod(name: str, phase: str = "Failed", *, node: str = NODE, **status: Any) -> dict[str, Any]:
    limits = {"nvidia.com/gpu": "1", "memory": "1Gi"}
    spec = {
        "nodeName": node,
        "initContainers": [{"name": "first"}],
        "containers": [{"name": "main", "resources": {"limits": limits}}],
        "terminationGracePeriodSeconds": 0,
    }
    metadata = {"name": name, "namespace": "ml", "uid": f"uid-{name}", "ownerReferences": OWNERS}
    return {"metadata": metadata, "spec": spec, "status": {"phase": phase, **status}}


@asynccontextmanager
async def open_pods(tmp_path: Path) -> AsyncIterator[tuple[FakeApiServer, KubeUnstartedPods]]:
    async with open_client(tmp_path) as (server, client):
        yield server, KubeUnstartedPods(client, NODE, Random(1), silence_seconds=20)


def add(server: FakeApiServer, document: dict[str, Any]) -> None:
    name = document["metadata"]["name"]
    before = deepcopy(server.pods.get(name))
    server.pods[name] = document
    server.store.note("pods", name, before)


async def read(pods: KubeUnstartedPods) -> dict[str, UnstartedPod]:
    (table,) = await take(pods.follow(), 1)
    return {each.pod.name: each for each in table.values()}


async def test_a_pod_is_read_with_what_a_refusal_takes(tmp_path: Path) -> None:
    """Its controller among its owners, its limits, and the kubelet's words about pod and container."""
    async with open_pods(tmp_path) as (server, pods):
        waiting = {"reason": "CreateContainerConfigError", "message": "no room"}
        status = {"name": "main", "state": {"waiting": waiting}, "lastState": {}, "restartCount": 0, "started": False}
        add(server, make_pod("a", reason="r", message="m", containerStatuses=[status]))
        found = (await read(pods))["a"]
        assert found == UnstartedPod(
            pod=PodIdentity(namespace="ml", name="a", uid="uid-a"),
            version=found.version,
            phase="Failed",
            reason="r",
            message="m",
            controller="StatefulSet",
            containers=(
                UnstartedContainer(name="first"),
                UnstartedContainer(name="main", resources=frozenset({"nvidia.com/gpu", "memory"}), waiting="no room"),
            ),
        )
        assert not found.has_run


async def test_a_bare_pod_a_static_pod_and_a_pod_that_goes_are_told_apart(tmp_path: Path) -> None:
    async with open_pods(tmp_path) as (server, pods):
        bare, mirror, going = (make_pod(name) for name in ("bare", "mirror", "going"))
        del bare["metadata"]["ownerReferences"]
        mirror["metadata"]["annotations"] = {"kubernetes.io/config.mirror": "x"}
        going["metadata"]["deletionTimestamp"] = "2026-01-01T00:00:00Z"
        for each in (bare, mirror, going):
            add(server, each)
        found = await read(pods)
        assert {name: (each.controller, each.is_static, each.is_going) for name, each in found.items()} == {
            "bare": ("", False, False),
            "mirror": ("StatefulSet", True, False),
            "going": ("StatefulSet", False, True),
        }


@pytest.mark.parametrize(
    "status",
    [
        {"state": {"running": {}}},
        {"state": {"terminated": {"exitCode": 0}}},
        {"state": {"waiting": {}}, "lastState": {"terminated": {}}},
        {"restartCount": 1},
        {"started": True},
    ],
    ids=str,
)
@pytest.mark.parametrize("key", ["initContainerStatuses", "containerStatuses"])
async def test_a_container_that_has_started_is_seen(tmp_path: Path, key: str, status: dict[str, Any]) -> None:
    """Init containers count too."""
    name = "first" if key.startswith("init") else "main"
    async with open_pods(tmp_path) as (server, pods):
        document = make_pod("a")
        document["status"][key] = [{"name": name, **status}]
        add(server, document)
        assert (await read(pods))["a"].has_run


async def test_only_pods_of_this_node_that_have_not_started_are_followed(tmp_path: Path) -> None:
    """A pod that starts leaves the table."""
    async with open_pods(tmp_path) as (server, pods):
        for document in (
            make_pod("a"),
            make_pod("b", "Pending"),
            make_pod("c", "Running"),
            make_pod("d", "Succeeded"),
            make_pod("e", node="other"),
        ):
            add(server, document)
        async with aclosing(pods.follow()) as tables:
            assert {*await anext(tables)} == {"uid-a", "uid-b"}
            add(server, make_pod("b", "Running"))
            assert {*await anext(tables)} == {"uid-a"}
            add(server, make_pod("f", "Pending"))
            assert {*await anext(tables)} == {"uid-a", "uid-f"}
        assert [each[0] for each in server.requests] == ["WATCH"]


async def test_a_pod_is_deleted_as_it_was_seen_and_the_audit_log_has_it(tmp_path: Path) -> None:
    """With its own grace; once it is gone there is nothing to do."""
    kept: list[Change] = []
    async with open_pods(tmp_path) as (server, pods):
        add(server, make_pod("a"))
        seen = (await read(pods))["a"]
        with keeping(kept.append):
            assert await pods.delete(seen)
            assert not await pods.delete(seen)
        assert server.pods == {}
        assert server.bodies[0] == {
            "apiVersion": "v1",
            "kind": "DeleteOptions",
            "preconditions": {"uid": "uid-a", "resourceVersion": seen.version},
        }
    assert [(each.name, each.action, each.outcome.partition(":")[0]) for each in kept] == [
        (PATH, "delete the refused pod ml/a", DONE),
        (PATH, "delete the refused pod ml/a", "ApiNotFound"),
    ]


async def test_a_pod_that_changed_or_came_later_stays(tmp_path: Path) -> None:
    async with open_pods(tmp_path) as (server, pods):
        add(server, make_pod("a"))
        seen = (await read(pods))["a"]
        other = replace(seen, pod=PodIdentity(namespace="ml", name="a", uid="uid-of-another"))
        assert not await pods.delete(other)
        add(server, make_pod("a", message="news"))
        assert not await pods.delete(seen)
        assert "a" in server.pods


async def test_trouble_is_told(tmp_path: Path) -> None:
    """A missing right by the file that gives it; a proxy's word on a missing page deletes no pod."""
    async with open_pods(tmp_path) as (server, pods):
        add(server, make_pod("a"))
        seen = (await read(pods))["a"]
        for ask, requests in ((partial(read, pods), 2), (partial(pods.delete, seen), 1)):
            server.answer(403, times=requests)
            with pytest.raises(ApiForbidden, match=r"deploy/rbac-refused-pods\.yaml"):
                await ask()
        server.answer(404, body=b"<html>no such host</html>")
        with pytest.raises(ApiUnreachable, match="another one answers"):
            await pods.delete(seen)
        server.answer(429)
        with pytest.raises(ApiBusy):
            await pods.delete(seen)
        server.break_off(b'{"items": [{"metadata": {}}], "metadata": {"resourceVersion": "1"}}')
        with pytest.raises(ApiUnreachable, match="makes no sense"):
            await read(pods)
