"""The labels of this node in the object that node feature discovery reads, and who that object belongs to."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from nodeagent.edge.kube.client import KubeClient
from nodeagent.edge.kube.node_feature import NodeFeatureObject
from tests.component.edge_kube.harness import COUNT, EAGER, open_client
from tests.fakes.apiserver import NODE, FakeApiServer
from tests.support.wire.given_credentials import GivenCredentials


@pytest.mark.parametrize(("namespace", "used"), [("gpu-agents", "gpu-agents"), (None, "default")])
async def test_a_node_feature_is_read_as_it_was_written(tmp_path: Path, namespace: str | None, used: str) -> None:
    """None reads as nothing; the object names its node and holds the labels, empty values too."""
    async with open_client(tmp_path) as (server, client):
        feature = NodeFeatureObject(client, NODE, namespace)
        assert await feature.read() == ""
        text = f"nvidia.com/cuda.driver.rev=\n{COUNT}=8\n"
        await feature.write(text)
        assert await feature.read() == text
        assert f"/namespaces/{used}/" in server.requests[-1][1]
        document = server.features["nvidia-features-for-node-1"]
        assert document["metadata"]["labels"] == {"nfd.node.kubernetes.io/node-name": NODE}
        assert document["spec"]["labels"] == {"nvidia.com/cuda.driver.rev": "", COUNT: "8"}


DAEMON_SET = {"apiVersion": "apps/v1", "kind": "DaemonSet", "name": "nodeagent", "uid": "ds"}


def make_pod(name: str, *owners: dict[str, str]) -> dict[str, object]:
    return {"metadata": {"name": name, "uid": f"uid-of-{name}", "ownerReferences": list(owners)}}


@asynccontextmanager
async def open_feature(tmp_path: Path, **more: str) -> AsyncIterator[tuple[FakeApiServer, NodeFeatureObject]]:
    async with open_client(tmp_path) as (server, client):
        yield server, NodeFeatureObject(client, NODE, **{"namespace": "default", **more})


def owners_of(server: FakeApiServer) -> list[tuple[str, str]]:
    metadata = server.features[f"nvidia-features-for-{NODE}"]["metadata"]
    return [(each["kind"], each["uid"]) for each in metadata.get("ownerReferences", ())]


async def test_a_node_feature_belongs_to_the_daemon_set_and_its_pod(tmp_path: Path) -> None:
    """It outlives the pod by the DaemonSet; the next pod takes it over by reading it, and labels stay."""
    async with open_feature(tmp_path, pod_name="agent-1") as (server, feature):
        server.pods = {each: make_pod(each, DAEMON_SET) for each in ("agent-1", "agent-2")}
        await feature.write("a=1\n")
        assert owners_of(server) == [("DaemonSet", "ds"), ("Pod", "uid-of-agent-1")]
        asked = len(server.requests)
        assert await feature.read() == "a=1\n"
        assert [method for method, _ in server.requests[asked:]] == ["GET"], "the owners are known by now"
        client = KubeClient(GivenCredentials(tmp_path / "kubeconfig"), lambda: EAGER)
        successor = NodeFeatureObject(client, NODE, None, "agent-2")
        assert await successor.read() == "a=1\n"
        assert owners_of(server) == [("DaemonSet", "ds"), ("Pod", "uid-of-agent-2")]
        await client.aclose()


@pytest.mark.parametrize("pod_name", ["agent-1", "absent"])
async def test_an_object_without_a_known_owner_has_none(tmp_path: Path, pod_name: str) -> None:
    """A pod of no DaemonSet, one that is not beside the object: labels are written, and nothing collects them."""
    async with open_feature(tmp_path, pod_name=pod_name) as (server, feature):
        server.pods = {"agent-1": make_pod("agent-1")}
        await feature.write("a=1\n")
        await feature.write("a=2\n")
        assert owners_of(server) == []
        assert await feature.read() == "a=2\n"


async def test_a_node_feature_is_taken_away_once(tmp_path: Path) -> None:
    """What is not there needs no removal; without the right to look there is nothing of ours to remove."""
    async with open_feature(tmp_path) as (server, feature):
        assert not await feature.remove()
        await feature.write("a=1\n")
        server.answer(403)
        assert not await feature.remove()
        assert await feature.remove()
        assert server.features == {}
