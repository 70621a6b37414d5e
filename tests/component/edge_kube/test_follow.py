"""Lists that the server streams by a watch, and what is done where it does not."""

import json
from contextlib import aclosing
from pathlib import Path
from random import Random

import anyio
import pytest
from aiohttp import web

from nodeagent.edge.kube import follow
from nodeagent.edge.kube.errors import ApiForbidden, ApiUnreachable
from nodeagent.edge.kube.follow import LIST_END, Change, Follower
from nodeagent.edge.kube.node import NODES
from tests.component.edge_kube.harness import open_client, take
from tests.fakes.apiserver import NODE, FakeApiServer

LIST, WATCH = ("GET", NODES), ("WATCH", NODES)
FIVE_HUNDRED = '{"type": "ERROR", "object": {"code": 500, "message": "etcd"}}'


def line(kind: str, name: str = "", version: str = "1", *, is_end: bool = False) -> str:
    metadata = {"name": name, "resourceVersion": version} | ({"annotations": {LIST_END: "true"}} if is_end else {})
    return json.dumps({"type": kind, "object": {"metadata": metadata}})


def say(server: FakeApiServer, *lines: str) -> None:
    """Have the next request answered with a watch of these lines."""
    server.answer(200, body="".join(f"{each}\n" for each in lines).encode())


def name_all(news: follow.News) -> list[str]:
    objects = [news.found] if isinstance(news, Change) else news
    return [each["metadata"]["name"] for each in objects]


async def test_one_request_brings_the_list_and_the_changes(tmp_path: Path) -> None:
    """What changes while the server streams is in the list; later watches go on from the last bookmark."""
    async with open_client(tmp_path) as (server, client):
        follower = Follower(client, NODES, {}, "nodes", Random(1))
        streamed = [line("ADDED", "a"), line("ADDED", "b"), line("MODIFIED", "b", "2"), line("DELETED", "a")]
        say(server, *streamed, line("BOOKMARK", version="3", is_end=True), line("ADDED", "c"), line("BOOKMARK"))
        server.add_node("d")
        async with aclosing(follower.follow()) as news:
            objects = await anext(news)
            assert not isinstance(objects, Change)
            assert [each["metadata"]["resourceVersion"] for each in objects] == ["2"]
            assert name_all(await anext(news)) == ["c"]
            server.store.oldest = 0
            assert name_all(await anext(news)) == [NODE]
        assert server.requests == [WATCH, WATCH]


@pytest.mark.parametrize("packs", [False, True])
async def test_a_watch_is_read_however_it_is_packed(tmp_path: Path, *, packs: bool) -> None:
    """Plain, as asked for; or part by part of a chain, where somebody between compresses all the same."""
    async with open_client(tmp_path) as (server, client):
        server.packs_anyway = packs
        async with aclosing(Follower(client, NODES, {}, "nodes", Random(1)).follow()) as news:
            assert name_all(await anext(news)) == [NODE]
            for number in range(3):
                server.put_label("number", str(number))
                with anyio.fail_after(20):
                    change = await anext(news)
                assert isinstance(change, Change)
                assert change.found["metadata"]["labels"] == {"number": str(number)}
        assert server.requests == [WATCH]


async def test_a_server_that_streams_no_list_is_asked_once(tmp_path: Path) -> None:
    """As one of Kubernetes 1.33: it refuses the parameter, and from then on a list comes first."""
    async with open_client(tmp_path) as (server, client):
        server.streams_lists = False
        follower = Follower(client, NODES, {}, "nodes", Random(1))
        for _ in range(2):
            assert [name_all(each) for each in await take(follower.follow(), 1)] == [[NODE]]
        assert server.requests == [WATCH, LIST, LIST]


async def test_a_server_that_does_not_know_the_parameter_is_asked_once(tmp_path: Path) -> None:
    """It sends what there is, and a bookmark that ends nothing."""
    async with open_client(tmp_path) as (server, client):
        follower = Follower(client, NODES, {}, "nodes", Random(1))
        say(server, line("ADDED", "a"), line("BOOKMARK"))
        for _ in range(2):
            assert [name_all(each) for each in await take(follower.follow(), 1)] == [[NODE]]
        assert server.requests == [WATCH, LIST, LIST]


async def test_a_list_that_is_never_over_is_not_waited_for(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """As where the storage does not report how far it is."""
    monkeypatch.setattr(follow, "LIST_SECONDS", 0.2)
    async with open_client(tmp_path) as (server, client):
        follower = Follower(client, NODES, {}, "nodes", Random(1))
        never = anyio.Event()

        async def respond() -> web.StreamResponse:
            await never.wait()
            raise AssertionError("nobody sets that event")

        server.answers.append(respond)
        assert [name_all(each) for each in await take(follower.follow(), 1)] == [[NODE]]
        assert server.requests == [WATCH, LIST]


@pytest.mark.parametrize("said", [FIVE_HUNDRED, line("ADDED", "a")])
async def test_a_streamed_list_that_fails_is_listed_this_time(tmp_path: Path, said: str) -> None:
    """With an error, or with an end before its end; the next one is streamed again."""
    async with open_client(tmp_path) as (server, client):
        follower = Follower(client, NODES, {}, "nodes", Random(1))
        say(server, said)
        for _ in range(2):
            assert [name_all(each) for each in await take(follower.follow(), 1)] == [[NODE]]
        assert server.requests == [WATCH, LIST, WATCH]


async def test_a_rejected_identity_is_renewed(tmp_path: Path) -> None:
    """By the list, on a new connection; the watch goes by that one."""
    async with open_client(tmp_path) as (server, client):
        follower = Follower(client, NODES, {}, "nodes", Random(1))
        server.answer(401)
        assert [name_all(each) for each in await take(follower.follow(), 1)] == [[NODE]]
        assert server.requests == [WATCH, LIST]


async def test_what_neither_way_gives_is_an_error(tmp_path: Path) -> None:
    """A missing right is told by the list; a server that is away is told at once."""
    async with open_client(tmp_path) as (server, client):
        follower = Follower(client, NODES, {}, "nodes", Random(1))
        server.answer(403, times=2)
        with pytest.raises(ApiForbidden, match="read nodes"):
            await take(follower.follow(), 1)
        say(server, "[]")
        with pytest.raises(ApiUnreachable, match="watch nodes"):
            await take(follower.follow(), 1)
        assert server.requests == [WATCH, LIST, WATCH]
