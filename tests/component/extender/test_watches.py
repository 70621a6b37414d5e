"""The picture of the cluster stays true through everything that happens to its watches."""

from collections.abc import AsyncGenerator, Callable
from dataclasses import dataclass, field
from itertools import pairwise
from pathlib import Path
from random import Random
from typing import Any, Generic, TypeVar, cast

import anyio
import anyio.lowlevel
import pytest

from nodeagent.core.clock import SystemClock
from nodeagent.edge.kube.errors import ApiExpired
from nodeagent.edge.kube.fleet import Change, Page
from nodeagent.extender.cluster import Cluster
from nodeagent.extender.watches import ClusterWatches
from nodeagent.model.scheduling import SeenNode, SeenPod
from tests.component.extender.harness import OpenExtender, capacity, open_extender, open_server
from tests.support.scheduling import PROFILES, limit
from tests.support.waiting import wait_until

T = TypeVar("T")
INDEX = {"tencent.com/predicate-gpu-idx-0": "0"}


def used(extender: OpenExtender, node: str = "n") -> int:
    account = extender.cluster.find_space(node)
    return sum(room.cores_used for room in account.space.rooms) if account is not None else -1


async def test_what_happens_is_seen(tmp_path: Path) -> None:
    """A node comes, changes and goes; a pod is bound, finishes, is deleted."""
    async with open_server() as server, open_extender(server, tmp_path) as extender:
        assert used(extender) == -1
        server.put_node("n", capacity=capacity())
        server.put_pod("a", limit(30, 1), node="n", annotations=INDEX)
        server.put_pod("b", limit(20, 1), node="n", annotations=INDEX)
        server.put_pod("other", {"cpu": "1"}, node="n")
        await wait_until(lambda: used(extender) == 50)
        server.put_pod("a", limit(30, 1), node="n", annotations=INDEX, phase="Succeeded")
        await wait_until(lambda: used(extender) == 20)
        server.drop("pods", "b")
        await wait_until(lambda: used(extender) == 0)
        server.drop("nodes", "n")
        await wait_until(lambda: used(extender) == -1)
        assert extender.cluster.pods == {}


async def test_who_is_deleted_by_force_counts_for_a_while(tmp_path: Path) -> None:
    """Its containers run on; one that has finished is told as gone too, by what it was before, and is free at once."""
    async with open_server() as server, open_extender(server, tmp_path) as extender:
        server.put_node("n", capacity=capacity())
        server.put_pod("a", limit(30, 1), node="n", annotations=INDEX)
        server.put_pod("b", limit(20, 1), node="n", annotations=INDEX)
        await wait_until(lambda: used(extender) == 50)
        server.drop("pods", "a", by_force=True)
        server.drop("pods", "b")
        await wait_until(lambda: not extender.cluster.pods)
        assert used(extender) == 30
        extender.cluster.expire(SystemClock().monotonic() + 31)
        assert used(extender) == 0


async def test_a_lost_server_is_found_again(tmp_path: Path) -> None:
    """What happened meanwhile is told by the next watch, without another list; what was promised is kept."""
    async with open_server() as server:
        server.put_node("n", capacity=capacity())
        server.put_pod("a", limit(30, 1), node="n", annotations=INDEX)
        server.put_pod("b", limit(20, 1))
        async with open_extender(server, tmp_path) as extender:
            assert await extender.schedule("b") == "n"
            await extender.wait_seen("b")
            assert used(extender) == 50
            before = extender.picture.relists
            await server.stop()
            server.drop("pods", "a")
            server.put_node("m", capacity=capacity())
            await server.start()
            await wait_until(lambda: (used(extender), used(extender, "m")) == (20, 0))
            assert extender.picture.relists == before
            assert extender.picture.silent_seconds == 0


async def test_a_version_that_is_too_old_is_listed_anew(tmp_path: Path) -> None:
    """As after a long pause; nothing is lost, and nobody is told that a watch is away."""
    async with open_server() as server:
        server.put_node("n", capacity=capacity())
        async with open_extender(server, tmp_path) as extender:
            before = extender.picture.relists
            await wait_until(lambda: server.watching == 2)
            server.store.version += 10
            server.store.forget()
            server.end_watches()
            await wait_until(lambda: extender.picture.relists == before + 2)
            assert extender.picture.silent_seconds == 0


async def test_bookmarks_tell_nothing_and_are_remembered(tmp_path: Path) -> None:
    """The next watch goes on from there."""
    async with open_server() as server:
        server.put_node("n", capacity=capacity())
        async with open_extender(server, tmp_path) as extender:
            server.bookmark()
            server.put_pod("a", limit(30, 1), node="n", annotations=INDEX)
            await extender.wait_seen("a")
            assert used(extender) == 30
            assert extender.picture.relists == 2


async def test_what_is_gone_meanwhile_is_gone_after_another_list(tmp_path: Path) -> None:
    """Where the server no longer knows what happened: how a pod ended that is not on the list is not known either."""
    async with open_server() as server:
        for name in "nm":
            server.put_node(name, capacity=capacity())
        server.put_pod("a", limit(30, 1), node="n", annotations=INDEX)
        async with open_extender(server, tmp_path) as extender:
            await wait_until(lambda: server.watching == 2)
            await server.stop()
            server.drop("pods", "a")
            server.drop("nodes", "m")
            server.store.forget()
            await server.start()
            await wait_until(lambda: not extender.cluster.pods and used(extender, "m") == -1)
            assert used(extender) == 30
            extender.cluster.expire(SystemClock().monotonic() + 31)
            assert used(extender) == 0
            assert extender.picture.relists == 4


@dataclass
class ExpiringWatch(Generic[T]):
    """A server that lists and knows no version that it has told."""

    read_clock: Callable[[], float]
    listed_at: list[float] = field(default_factory=list)

    async def list(self) -> AsyncGenerator[Page[T], None]:
        self.listed_at.append(self.read_clock())
        await anyio.sleep(70)  # a large cluster takes its time
        yield Page([], "1", is_last=True)

    async def watch(
        self, version: str, on_open: Callable[[], object] = lambda: None
    ) -> AsyncGenerator[Change[T], None]:
        on_open()
        if version:
            raise ApiExpired(f"watch from {version}", 410, "too old")
        yield Change("bookmark", version, None)


@pytest.mark.virtual_time
async def test_a_server_that_knows_no_version_is_listed_ever_more_seldom() -> None:
    """Each list is the whole cluster: the pauses between them grow to a minute."""
    clock = anyio.current_time
    nodes, pods = ExpiringWatch[SeenNode](clock), ExpiringWatch[SeenPod](clock)
    picture = ClusterWatches(
        Cluster(PROFILES, assume_seconds=60), cast("Any", nodes), cast("Any", pods), Random(1), clock
    )
    with anyio.move_on_after(3000):
        await picture.run()
    pauses = [after - before - 70 for before, after in pairwise(nodes.listed_at)]
    assert pauses[0] < 0.3
    assert all(before < after for before, after in pairwise(pauses[:8]))
    assert all(29 < pause < 61 for pause in pauses[9:])
    assert len(pauses) > 12


async def test_ready_means_that_the_first_question_finds_all_accounts_made(tmp_path: Path) -> None:
    """Those of nodes that changed meanwhile too; until then it is not ready and answers no question."""
    async with open_server() as server:
        for number in range(100):
            server.put_node(f"n{number}", capacity=capacity())
        server.put_pod("a", limit(30, 1), node="n7", annotations=INDEX)
        async with open_extender(server, tmp_path, synced=False) as extender:
            prepared: list[bool] = []
            while not extender.picture.is_ready:
                prepared.append(any(entry.accounts.get("") is not None for entry in extender.cluster.nodes.values()))
                assert (await extender.get("/readyz"))[0] == 503
                await anyio.lowlevel.checkpoint()
            assert prepared.count(True) >= 2
            accounts = [entry.accounts.get("") for entry in extender.cluster.nodes.values()]
            assert all(account is not None and "summary" in vars(account.plain[1]) for account in accounts)
            assert (await extender.get("/readyz"))[0] == 200


async def test_another_list_leaves_the_accounts_of_nodes_that_are_as_before(tmp_path: Path) -> None:
    """And so does a change of a pod that takes the same as before."""
    async with open_server() as server:
        server.put_node("n", capacity=capacity())
        server.put_pod("a", limit(30, 1), node="n", annotations=INDEX)
        async with open_extender(server, tmp_path) as extender:
            account = extender.cluster.find_space("n")
            server.put_pod("a", limit(30, 1), node="n", annotations=INDEX, phase="Running")
            await extender.wait_seen("a")
            assert extender.cluster.find_space("n") is account
            server.put_pod("a", limit(30, 1), node="n", annotations={"tencent.com/predicate-gpu-idx-0": "1"})
            await extender.wait_seen("a")
            assert extender.cluster.find_space("n") is not account
            assert used(extender) == 30
