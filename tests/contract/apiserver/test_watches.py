"""Watches of an API server: what they say, from which version on, and how they end."""

from contextlib import aclosing
from random import Random

import anyio
import pytest

from nodeagent.edge.kube.errors import ApiExpired
from nodeagent.edge.kube.follow import LIST_END, Change, Follower
from tests.support.wire.api_servers import MERGE, OpenApiServer, path_of, render_node, render_pod

PODS = path_of("pods", everywhere=True)
STREAMED = {"sendInitialEvents": "true", "resourceVersionMatch": "NotOlderThan", "allowWatchBookmarks": "true"}


async def test_changes_come_in_their_order(open_api_server: OpenApiServer) -> None:
    """A watch tells what came after its version, each object with its kind and with the version of that change."""
    async with open_api_server() as server:
        name = server.new_name("node")
        before = await server.read_version()
        made = await server.add("nodes", render_node(name))
        patch = {"metadata": {"labels": {"a": "b"}}}
        patched = (await server.ask("PATCH", path_of("nodes", name), patch, kind=MERGE)).document
        await server.drop("nodes", name)
        async with server.watching(path_of("nodes"), before, fieldSelector=f"metadata.name={name}") as lines:
            found = [await anext(lines) for _ in range(3)]
        assert [line["type"] for line in found] == ["ADDED", "MODIFIED", "DELETED"]
        assert {line["object"]["kind"] for line in found} == {"Node"}
        versions = [int(line["object"]["metadata"]["resourceVersion"]) for line in found]
        assert versions[:2] == [int(each["metadata"]["resourceVersion"]) for each in (made, patched)]
        assert versions[2] > versions[1]
        assert found[2]["object"]["metadata"]["labels"]["a"] == "b"


async def test_a_watch_waits_for_what_comes(open_api_server: OpenApiServer) -> None:
    """What happens while a watch is open is told at once, and nothing that was before it."""
    async with open_api_server() as server:
        name = server.new_name("node")
        await server.add("nodes", render_node(name))
        now = await server.read_version()
        async with server.watching(path_of("nodes"), now, fieldSelector=f"metadata.name={name}") as lines:
            await server.drop("nodes", name)
            with anyio.fail_after(30):
                assert (await anext(lines))["type"] == "DELETED"


async def test_a_list_is_streamed_by_a_watch(open_api_server: OpenApiServer) -> None:
    """What there is as added, a bookmark that says so, and what changes; the agent reads that as a list and changes."""
    async with open_api_server() as server:
        node, name, later = server.new_name("node"), server.new_name("pod"), server.new_name("pod")
        await server.add("nodes", render_node(node))
        made = await server.add("pods", render_pod(name, node))
        query = STREAMED | {"fieldSelector": f"spec.nodeName={node}"}
        async with server.watching(PODS, "", **query) as lines:
            found = [await anext(lines) for _ in range(2)]
            await server.add("pods", render_pod(later, node))
            found.append(await anext(lines))
        assert [line["type"] for line in found] == ["ADDED", "BOOKMARK", "ADDED"]
        assert [line["object"]["metadata"].get("name") for line in found] == [name, None, later]
        end = found[1]["object"]
        assert (end["kind"], end["metadata"]["annotations"]) == ("Pod", {LIST_END: "true"})
        versions = [int(line["object"]["metadata"]["resourceVersion"]) for line in found]
        assert int(made["metadata"]["resourceVersion"]) <= versions[1] < versions[2]
        async with server.client() as client:
            follower = Follower(client, PODS, {"fieldSelector": f"spec.nodeName={node}"}, "pods", Random(1))
            async with aclosing(follower.follow()) as news:
                objects = await anext(news)
                assert not isinstance(objects, Change)
                await server.drop("pods", later)
                changes = [await anext(news)]
                while isinstance(changes[-1], Change) and changes[-1].kind != "DELETED":
                    changes.append(await anext(news))
        assert {each["metadata"]["name"] for each in objects} == {name, later}
        assert {call.verb for call in client.counts} == {"WATCH"}


@pytest.mark.parametrize(
    ("query", "words"),
    [
        ({"sendInitialEvents": "true"}, "sendInitialEvents requires setting resourceVersionMatch to NotOlderThan"),
        ({"resourceVersionMatch": "NotOlderThan"}, "is forbidden for watch unless sendInitialEvents is provided"),
    ],
)
async def test_parameters_that_do_not_go_together_are_refused(
    open_api_server: OpenApiServer, query: dict[str, str], words: str
) -> None:
    """Before the watch begins, in one status that names the parameter."""
    async with open_api_server() as server:
        answer = await server.ask("GET", PODS, watch="1", **query)
        assert answer.refusal[:2] == (422, "Invalid")
        assert answer.refusal[2].startswith('ListOptions.meta.k8s.io "" is invalid: resourceVersionMatch: Forbidden: ')
        assert words in answer.refusal[2]


@pytest.mark.parametrize("encoding", ["identity", "gzip"])
async def test_a_streamed_list_may_be_compressed_part_by_part(open_api_server: OpenApiServer, encoding: str) -> None:
    """For who takes gzip, as one member of gzip after the other; nobody else gets any."""
    async with open_api_server() as server:
        name = server.new_name("node")
        await server.add("nodes", render_node(name))
        query = STREAMED | {"fieldSelector": f"metadata.name={name}", "encoding": encoding}
        async with server.watching(path_of("nodes"), "", **query) as lines:
            found = [await anext(lines) for _ in range(2)]
            await server.drop("nodes", name)
            found.append(await anext(lines))
        assert [line["type"] for line in found] == ["ADDED", "BOOKMARK", "DELETED"]


async def test_what_leaves_the_selection_is_deleted(open_api_server: OpenApiServer) -> None:
    """A pod that finishes is deleted for who watches those that have not, in the version in which it finished."""
    async with open_api_server() as server:
        node, name = server.new_name("node"), server.new_name("pod")
        before = await server.read_version()
        await server.add("nodes", render_node(node))
        await server.add("pods", render_pod(name, node))
        done = {"status": {"phase": "Failed"}}
        finished = (await server.ask("PATCH", f"{path_of('pods', name)}/status", done, kind=MERGE)).document
        await server.ask("PATCH", path_of("pods", name), {"metadata": {"labels": {"a": "b"}}}, kind=MERGE)
        await server.ask("PATCH", f"{path_of('pods', name)}/status", {"status": {"phase": "Running"}}, kind=MERGE)
        selector = f"spec.nodeName={node},status.phase!=Succeeded,status.phase!=Failed"
        async with server.watching(PODS, before, fieldSelector=selector) as lines:
            found = [await anext(lines) for _ in range(2)]
        assert [line["type"] for line in found] == ["ADDED", "DELETED"]
        assert found[1]["object"]["metadata"]["resourceVersion"] == finished["metadata"]["resourceVersion"]


async def test_what_enters_the_selection_is_added(open_api_server: OpenApiServer) -> None:
    """A pod that is bound to a node is new for who watches the pods of that node."""
    async with open_api_server() as server:
        node, name = server.new_name("node"), server.new_name("pod")
        await server.add("nodes", render_node(node))
        await server.add("pods", render_pod(name))
        before = await server.read_version()
        binding = {"apiVersion": "v1", "kind": "Binding", "metadata": {"name": name}}
        target = {"target": {"apiVersion": "v1", "kind": "Node", "name": node}}
        bound = await server.ask("POST", f"{path_of('pods', name)}/binding", binding | target)
        assert bound.status == 201
        async with server.watching(PODS, before, fieldSelector=f"spec.nodeName={node}") as lines:
            line = await anext(lines)
        assert (line["type"], line["object"]["spec"]["nodeName"]) == ("ADDED", node)


async def test_a_pod_deleted_by_force_says_so(open_api_server: OpenApiServer) -> None:
    """Its last versions have the time of its deletion and no grace, whether it was asked to go before or not."""
    async with open_api_server() as server:
        node, asked_before, at_once = server.new_name("node"), server.new_name("pod"), server.new_name("pod")
        await server.add("nodes", render_node(node))
        for name in (asked_before, at_once):
            document = render_pod(name, node)
            del document["spec"]["terminationGracePeriodSeconds"]
            await server.add("pods", document)
        before = await server.read_version()
        await server.ask("DELETE", path_of("pods", asked_before))
        await server.drop("pods", asked_before)
        await server.drop("pods", at_once)
        seen: list[tuple[str, str, int]] = []
        async with server.watching(PODS, before, fieldSelector=f"spec.nodeName={node}") as lines:
            while len([kind for kind, *_ in seen if kind == "DELETED"]) < 2:
                line = await anext(lines)
                metadata = line["object"]["metadata"]
                assert metadata["deletionTimestamp"]
                seen.append((line["type"], metadata["name"], metadata["deletionGracePeriodSeconds"]))
        assert seen == [
            ("MODIFIED", asked_before, 30),
            ("MODIFIED", asked_before, 0),
            ("DELETED", asked_before, 0),
            ("MODIFIED", at_once, 0),
            ("DELETED", at_once, 0),
        ]


async def test_a_version_that_is_too_old_is_said_in_the_watch(open_api_server: OpenApiServer) -> None:
    """The watch is taken, and its one line is an error that says 410."""
    async with open_api_server() as server:
        features = path_of("nodefeatures", everywhere=True)
        async with server.watching(features, "1") as lines:
            (line,) = [line async for line in lines]
        assert (line["type"], line["object"]["kind"], line["object"]["status"]) == ("ERROR", "Status", "Failure")
        assert (line["object"]["code"], line["object"]["reason"]) == (410, "Expired")
        assert line["object"]["message"].startswith("too old resource version: 1 (")
        async with server.client() as client:
            with pytest.raises(ApiExpired, match="too old resource version"):
                async for _ in Follower(client, features, {}, "features", Random(1)).watch("1"):
                    pass


async def test_a_watch_ends_when_its_time_is_over(open_api_server: OpenApiServer) -> None:
    """Two seconds before that, a bookmark says up to which version nothing happened; then the answer ends."""
    async with open_api_server() as server:
        name = server.new_name("node")
        await server.add("nodes", render_node(name))
        now = await server.read_version()
        query = {"fieldSelector": f"metadata.name={name}", "timeoutSeconds": "4", "allowWatchBookmarks": "true"}
        async with server.watching(path_of("nodes"), now, **query) as lines:
            with anyio.fail_after(30):
                await server.add("nodes", render_node(server.new_name("other")))
                found = [line async for line in lines]
        assert {line["type"] for line in found} == {"BOOKMARK"}
        assert found[0]["object"]["kind"] == "Node"
        assert int(found[0]["object"]["metadata"]["resourceVersion"]) > int(now)
