"""The labels of this node's pods, from a server on loopback."""

import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from random import Random

import pytest

from nodeagent.edge.kube.client import KubeClient
from nodeagent.edge.kube.errors import ApiForbidden, ApiUnreachable
from nodeagent.edge.kube.pods import KubePods
from nodeagent.model.cluster import ApiCall
from tests.component.edge_kube.harness import open_client, take
from tests.fakes.apiserver import NODE, FakeApiServer


def make_pod(name: str, **labels: str) -> dict[str, object]:
    metadata = {"name": name, "namespace": "ml", "uid": f"uid-{name}", "labels": labels, "resourceVersion": "7"}
    return {"metadata": metadata if labels else metadata | {"labels": None}, "spec": {"nodeName": NODE}}


def line(kind: str, content: object) -> bytes:
    return json.dumps({"type": kind, "object": content}).encode() + b"\n"


@asynccontextmanager
async def open_pods(tmp_path: Path) -> AsyncIterator[tuple[FakeApiServer, KubeClient, KubePods]]:
    async with open_client(tmp_path) as (server, client):
        yield server, client, KubePods(client, NODE, Random(1))


async def test_pods_are_listed_and_then_followed(tmp_path: Path) -> None:
    """Come, changed, gone; a watch that is too old begins anew with a list; each table is whole."""
    async with open_pods(tmp_path) as (server, client, pods):
        server.pods = {"a": make_pod("a", team="blue")}
        expired = line("ERROR", {"code": 410, "message": "too old"})
        bookmark = line("BOOKMARK", {"metadata": {"resourceVersion": "8"}})
        server.watch_lines.extend([line("ADDED", make_pod("b")), bookmark, line("MODIFIED", make_pod("b", team="red"))])
        server.watch_lines.extend([line("DELETED", make_pod("a")), line("DELETED", make_pod("a")), expired])
        assert [{one.pod: one.labels for one in table.pods} for table in await take(pods.follow_pods(), 6)] == [
            {"a": {"team": "blue"}},
            {"a": {"team": "blue"}, "b": {}},
            {"a": {"team": "blue"}, "b": {"team": "red"}},
            {"b": {"team": "red"}},
            {"b": {"team": "red"}},
            {"a": {"team": "blue"}},
        ]
        assert [method for method, _ in server.requests] == ["WATCH", "WATCH"]
        assert client.counts == {ApiCall(verb="WATCH", outcome="200"): 2}


async def test_a_missing_right_is_named(tmp_path: Path) -> None:
    """Pods are nothing the agent may read unless it was given that right."""
    async with open_pods(tmp_path) as (server, client, pods):
        server.answer(403, times=2)
        with pytest.raises(ApiForbidden):
            await take(pods.follow_pods(), 1)
        assert client.counts[ApiCall(verb="GET", outcome="403")] == 1


async def test_an_answer_that_is_no_pod_is_an_error(tmp_path: Path) -> None:
    async with open_pods(tmp_path) as (server, _, pods):
        server.pods = {"a": {"metadata": {"name": "a"}, "spec": {"nodeName": NODE}}}
        with pytest.raises(ApiUnreachable, match="makes no sense"):
            await take(pods.follow_pods(), 1)
