"""All nodes and pods of a cluster, from a server on loopback."""

from collections.abc import AsyncIterator
from contextlib import aclosing, asynccontextmanager
from pathlib import Path
from random import Random

import pytest

from nodeagent.core.clock import SystemClock
from nodeagent.edge.kube import fleet
from nodeagent.edge.kube.client import LINE_BYTES_MAX, KubeClient
from nodeagent.edge.kube.errors import (
    ApiConflict,
    ApiExpired,
    ApiNotFound,
    ApiUnauthorized,
    ApiUnreachable,
)
from nodeagent.edge.kube.fleet import FleetWatch, PodAnnotations, watch_nodes, watch_pods
from nodeagent.edge.kube.lease import KubeLease
from nodeagent.model.scheduling import SeenNode, SeenPod
from tests.component.edge_kube.harness import EAGER
from tests.fakes.fleet import FakeFleet
from tests.support.wire.given_credentials import GivenCredentials


@asynccontextmanager
async def open_fleet(tmp_path: Path) -> AsyncIterator[tuple[FakeFleet, KubeClient]]:
    async with FakeFleet().running() as server:
        client = KubeClient(GivenCredentials(server.write_kubeconfig(tmp_path / "kubeconfig")), lambda: EAGER)
        try:
            yield server, client
        finally:
            await client.aclose()


def pods_of(client: KubeClient) -> FleetWatch[SeenPod]:
    return watch_pods(client, Random(1), silence_seconds=20)


def nodes_of(client: KubeClient) -> FleetWatch[SeenNode]:
    return watch_nodes(client, Random(1), silence_seconds=20)


async def test_a_large_cluster_is_listed_in_pages(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each as it comes, with the version from which on the whole can be watched."""
    monkeypatch.setattr(fleet, "PAGE", 2)
    async with open_fleet(tmp_path) as (server, client):
        for number in range(5):
            server.put_node(f"n{number}", {"a": "b"}, {"tencent.com/vcuda-core": "100"})
        pages = [page async for page in nodes_of(client).list()]
        assert [len(page.items) for page in pages] == [2, 2, 1]
        assert [page.is_last for page in pages] == [False, False, True]
        assert {page.version for page in pages} == {str(server.version)}
        capacity = {"tencent.com/vcuda-core": "100"}
        assert pages[0].items[0] == SeenNode(name="n0", annotations={"a": "b"}, capacity=capacity)


async def test_an_empty_cluster_is_one_page(tmp_path: Path) -> None:
    async with open_fleet(tmp_path) as (server, client):
        (page,) = [page async for page in pods_of(client).list()]
        assert (page.items, page.version, page.is_last) == ([], str(server.version), True)


async def test_changes_follow_the_list(tmp_path: Path) -> None:
    """Come, bound, finished, which is gone, and versions in between."""
    async with open_fleet(tmp_path) as (server, client):
        version = str(server.version)
        server.put_pod("a", {"tencent.com/vcuda-core": "100"})
        server.bookmark()
        server.put_pod("a", {"tencent.com/vcuda-core": "100"}, node="n")
        server.put_pod("a", node="n", phase="Succeeded")
        seen = []
        async with aclosing(pods_of(client).watch(version)) as changes:
            async for change in changes:
                seen.append((change.kind, change.found.node if change.found is not None else None))
                if len(seen) == 4:
                    break
        assert seen == [("changed", ""), ("bookmark", None), ("changed", "n"), ("gone", "n")]
        assert int(change.version) == server.version


async def test_a_pod_with_long_annotations_ends_no_watch(tmp_path: Path) -> None:
    """Anybody may write a quarter of a megabyte of them; a line is read whatever its length."""
    async with open_fleet(tmp_path) as (server, client):
        version = str(server.version)
        server.put_pod("a", annotations={"long": "x" * 300_000})
        server.put_pod("b", annotations={"long": "x" * 300_000})
        async with aclosing(pods_of(client).watch(version)) as changes:
            found = [(await anext(changes)).found for _ in range(2)]
        assert [pod.name for pod in found if pod is not None] == ["a", "b"]


async def test_a_line_without_end_ends_the_watch(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Memory is not for whoever stands between us and the server."""
    assert LINE_BYTES_MAX > 10_000_000
    monkeypatch.setattr("nodeagent.edge.kube.client.LINE_BYTES_MAX", 100_000)
    async with open_fleet(tmp_path) as (server, client):
        version = str(server.version)
        server.put_pod("a", annotations={"long": "x" * 300_000})
        with pytest.raises(ApiUnreachable, match="has more than 100000 bytes"):
            async for _ in pods_of(client).watch(version):
                pass


async def test_a_version_that_is_gone_is_told(tmp_path: Path) -> None:
    """So that everything is listed anew."""
    async with open_fleet(tmp_path) as (server, client):
        server.store.oldest = server.version + 1
        with pytest.raises(ApiExpired):
            async for _ in pods_of(client).watch(str(server.version)):
                pass


@pytest.mark.parametrize(
    "document",
    [{"metadata": {"name": "a"}}, {"metadata": {"name": "a", "namespace": "d", "uid": 7}}],
    ids=["no uid", "a uid that is none"],
)
async def test_what_is_no_pod_is_an_error(tmp_path: Path, document: dict[str, object]) -> None:
    """Nothing of it gets any further, by list or by watch."""
    async with open_fleet(tmp_path) as (server, client):
        version = str(server.version)
        server.put("pods", "a", document)
        with pytest.raises(ApiUnreachable, match="pod"):
            [page async for page in pods_of(client).list()]
        with pytest.raises(ApiUnreachable, match="pod"):
            async for _ in pods_of(client).watch(version):
                pass


async def test_an_object_without_version_is_an_error(tmp_path: Path) -> None:
    """A watch could not be gone on with."""
    async with open_fleet(tmp_path) as (server, client):
        version = str(server.version)
        server.bookmark(version="")
        with pytest.raises(ApiUnreachable, match="an object has no version"):
            async for _ in pods_of(client).watch(version):
                pass


async def test_annotations_are_written_for_one_pod_and_no_other(tmp_path: Path) -> None:
    """By uid, and by version where it matters; what is `None` is taken off."""
    async with open_fleet(tmp_path) as (server, client):
        server.put_pod("a", annotations={"keep": "1", "go": "2"})
        pod, annotations = SeenPod(namespace="default", name="a", uid="uid-of-a"), PodAnnotations(client)
        version = await annotations.write(pod, {"go": None, "new": "3"})
        assert server.annotations("a") == {"keep": "1", "new": "3"}
        assert version == str(server.version)
        with pytest.raises(ApiConflict):
            await annotations.write(pod, {"new": "4"}, at_version="1")
        with pytest.raises(ApiConflict):
            await annotations.write(SeenPod(namespace="default", name="a", uid="other"), {"new": "4"})
        with pytest.raises(ApiNotFound):
            await annotations.write(SeenPod(namespace="default", name="b", uid="uid-of-b"), {"new": "4"})
        assert server.annotations("a") == {"keep": "1", "new": "3"}


async def test_a_lease_is_made_kept_taken_and_given_up(tmp_path: Path) -> None:
    """Each time its version changes; a change of holder is counted."""
    async with open_fleet(tmp_path) as (server, client):
        lease = KubeLease(client, "gpu", "nodeagent-extender", SystemClock())
        assert await lease.read() is None
        first = await lease.write(None, "one", 15.0)
        assert (first.holder, first.seconds, first.transitions) == ("one", 15.0, 0)
        assert await lease.read() == first
        kept = await lease.write(first, "one", 15.0)
        assert (kept.acquired, kept.transitions) == (first.acquired, 0)
        with pytest.raises(ApiConflict):
            await lease.write(first, "two", 15.0)
        taken = await lease.write(kept, "two", 2.4)
        assert (taken.holder, taken.seconds, taken.transitions) == ("two", 2.0, 1)
        with pytest.raises(ApiConflict):
            await lease.write(None, "three", 15.0)
        assert (await lease.write(taken, "", 15.0)).holder == ""
        server.put("leases", "nodeagent-extender", {"spec": {"leaseDurationSeconds": "soon"}})
        with pytest.raises(ApiUnreachable, match="makes no sense"):
            await lease.read()


async def test_a_rejected_identity_is_renewed_once(tmp_path: Path) -> None:
    """As for every other request; whoever is rejected again is told."""
    async with open_fleet(tmp_path) as (server, client):
        server.put_node("n")
        server.refuse_lists.append(401)
        assert [page.items[0].name async for page in nodes_of(client).list()] == ["n"]
        server.refuse_lists.extend([401, 401])
        with pytest.raises(ApiUnauthorized):
            [page async for page in nodes_of(client).list()]


async def test_an_answer_without_version_is_an_error(tmp_path: Path) -> None:
    """What was written could not be waited for."""
    async with open_fleet(tmp_path) as (server, client):
        server.put_pod("a")
        server.answer_nonsense = True
        with pytest.raises(ApiUnreachable, match="its answer makes no sense"):
            await PodAnnotations(client).write(SeenPod(namespace="default", name="a", uid="uid-of-a"), {"x": "1"})
