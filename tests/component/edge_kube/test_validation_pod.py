"""The pod that validates a node, made, followed and removed on a server on loopback."""

import json
from collections.abc import AsyncIterator
from contextlib import aclosing, asynccontextmanager
from pathlib import Path
from random import Random
from typing import Any

import pytest

from nodeagent.edge.kube.errors import ApiUnreachable
from nodeagent.edge.kube.own_pod import KubeValidationPod, OwnPodUnknown, ValidationForbidden
from nodeagent.model.cluster import ValidationPod
from tests.component.edge_kube.harness import open_client
from tests.component.edge_kube.test_unstarted_pods import add
from tests.fakes.apiserver import NODE, FakeApiServer

OWN = "nodeagent-x"
OWNER = {"apiVersion": "apps/v1", "kind": "DaemonSet", "name": "nodeagent", "uid": "set"}


def make_own_pod(**spec: Any) -> dict[str, Any]:
    containers = [
        {"name": "side", "image": "busybox"},
        {"name": "nodeagent", "image": "registry.example/nodeagent:1", "imagePullPolicy": "Never"},
    ]
    metadata = {"name": OWN, "namespace": "agents", "uid": "own", "ownerReferences": [OWNER]}
    return {"metadata": metadata, "spec": {"nodeName": NODE, "containers": containers, **spec}}


@asynccontextmanager
async def open_pods(
    tmp_path: Path, own_name: str | None = OWN
) -> AsyncIterator[tuple[FakeApiServer, KubeValidationPod]]:
    async with open_client(tmp_path) as (server, client):
        yield server, KubeValidationPod(client, NODE, ("agents", own_name), Random(1), silence_seconds=20)


async def test_the_pod_is_of_the_agents_image_and_has_no_rights(tmp_path: Path) -> None:
    """On this node, past the scheduler; it ends by itself, and with the agent's pod."""
    async with open_pods(tmp_path) as (server, pods):
        add(server, make_own_pod(imagePullSecrets=[{"name": "s"}], runtimeClassName="nvidia"))
        await pods.create("nvidia.com/mig-1g.10gb", 12.4)
        body = server.bodies[-1]
    spec = body["spec"]
    (container,) = spec["containers"]
    assert (container["image"], container["imagePullPolicy"]) == ("registry.example/nodeagent:1", "Never")
    assert container["args"] == ["gpu", "validate"]
    assert container["resources"] == {"limits": {"nvidia.com/mig-1g.10gb": "1"}}
    assert (container["securityContext"]["capabilities"], "volumes" in spec) == ({"drop": ["ALL"]}, False)
    assert (spec["nodeName"], spec["restartPolicy"], spec["activeDeadlineSeconds"]) == (NODE, "Never", 12)
    assert (spec["imagePullSecrets"], spec["runtimeClassName"]) == ([{"name": "s"}], "nvidia")
    assert spec["automountServiceAccountToken"] is False
    assert [each["uid"] for each in body["metadata"]["ownerReferences"]] == ["own"]


async def test_the_first_container_counts_where_none_has_the_agents_name(tmp_path: Path) -> None:
    """The container of an installation that is not the chart's."""
    async with open_pods(tmp_path) as (server, pods):
        add(server, make_own_pod(containers=[{"name": "main", "image": "ours"}]))
        await pods.create("nvidia.com/gpu", 10)
        (container,) = server.bodies[-1]["spec"]["containers"]
        assert (container["image"], container["imagePullPolicy"]) == ("ours", "IfNotPresent")


async def test_the_pod_is_followed_to_its_end(tmp_path: Path) -> None:
    """With the words of kubelet and container; other pods are not seen."""
    async with open_pods(tmp_path) as (server, pods):
        add(server, make_own_pod())
        async with aclosing(pods.follow()) as states:
            assert await anext(states) is None
            await pods.create("nvidia.com/gpu", 10)
            assert await anext(states) == ValidationPod(phase="Pending")
            (name,) = (each for each in server.pods if each != OWN)
            waiting = {"waiting": {"reason": "ErrImagePull", "message": "no such image"}}
            add(server, server.pods[name] | {"status": {"containerStatuses": [{"state": waiting}]}})
            assert await anext(states) == ValidationPod(phase="Pending", message="ErrImagePull no such image")
            ended = {"terminated": {"reason": "Error", "message": "no GPU"}}
            status = {"phase": "Failed", "message": "it failed", "containerStatuses": [{"state": ended}]}
            add(server, server.pods[name] | {"status": status})
            assert await anext(states) == ValidationPod(phase="Failed", message="it failed Error no GPU")
            server.store.drop("pods", name)
            assert await anext(states) is None
        await pods.remove()


async def test_an_agent_in_no_pod_has_no_image_to_run(tmp_path: Path) -> None:
    async with open_pods(tmp_path, None) as (_, pods):
        with pytest.raises(OwnPodUnknown, match=r"set kubernetes.pod_name"):
            await pods.create("nvidia.com/gpu", 10)


async def test_missing_rights_have_a_remedy(tmp_path: Path) -> None:
    """Each of the three requests."""
    async with open_pods(tmp_path) as (server, pods):
        add(server, make_own_pod())
        server.answer(403, times=2)
        with pytest.raises(ValidationForbidden, match=r"deploy/rbac-validation\.yaml"):
            await anext(pods.follow())
        server.answer(403)
        with pytest.raises(ValidationForbidden, match=r"deploy/rbac-validation\.yaml"):
            await pods.remove()
        server.answer(200, body=json.dumps(make_own_pod()).encode())
        server.answer(403)
        with pytest.raises(ValidationForbidden, match=r"make the pod nodeagent-validation-"):
            await pods.create("nvidia.com/gpu", 10)


async def test_a_pod_without_containers_is_not_understood(tmp_path: Path) -> None:
    """As an answer of something that is no API server."""
    async with open_pods(tmp_path) as (server, pods):
        add(server, make_own_pod(containers=None))
        with pytest.raises(ApiUnreachable):
            await pods.create("nvidia.com/gpu", 10)
