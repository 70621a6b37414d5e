"""A node's conditions, written one by one into its status."""

from typing import Any

from nodeagent.edge.kube.node_document import parse_node
from tests.support.wire.api_servers import (
    APPLY,
    STRATEGIC,
    Answer,
    ApiServerUnderTest,
    Json,
    OpenApiServer,
    path_of,
    render_node,
)

FIRST, LATER = "2026-01-01T00:00:00Z", "2026-01-01T00:01:00Z"


async def write(server: ApiServerUnderTest, name: str, *conditions: Json, manager: str = "test") -> Answer:
    patch = {"status": {"conditions": list(conditions)}}
    path = f"{path_of('nodes', name)}/status"
    return await server.ask("PATCH", path, patch, kind=STRATEGIC, fieldManager=manager)


def condition(kind: str, **fields: Any) -> Json:
    return {"type": kind, "status": "True"} | fields


def list_types(node: Json) -> list[str]:
    return [each["type"] for each in node["status"]["conditions"]]


async def test_conditions_are_merged_by_their_type(open_api_server: OpenApiServer) -> None:
    """One of a type replaces its fields and keeps those that are not named; others stay where they are."""
    async with open_api_server() as server:
        name = server.new_name("node")
        await server.add("nodes", render_node(name))
        await write(server, name, condition("a", reason="One", lastTransitionTime=FIRST, lastHeartbeatTime=FIRST))
        await write(server, name, condition("b", reason="Two"))
        both = (await write(server, name, condition("a", status="False", lastHeartbeatTime=LATER))).document
        assert sorted(list_types(both)) == ["a", "b"]
        found = next(each for each in both["status"]["conditions"] if each["type"] == "a")
        assert (found["status"], found["reason"]) == ("False", "One")
        assert (found["lastTransitionTime"], found["lastHeartbeatTime"]) == (FIRST, LATER)


async def test_a_condition_is_taken_away_by_its_type(open_api_server: OpenApiServer) -> None:
    async with open_api_server() as server:
        name = server.new_name("node")
        await server.add("nodes", render_node(name))
        await write(server, name, condition("a"), condition("b"))
        left = (await write(server, name, {"type": "a", "$patch": "delete"})).document
        assert list_types(left) == ["b"]
        again = await write(server, name, {"type": "a", "$patch": "delete"})
        assert (again.status, list_types(again.document)) == (200, ["b"])


async def test_times_that_are_not_given_are_null(open_api_server: OpenApiServer) -> None:
    """A condition without times has them as null."""
    async with open_api_server() as server:
        name = server.new_name("node")
        await server.add("nodes", render_node(name))
        (found,) = (await write(server, name, condition("a"))).document["status"]["conditions"]
        assert (found["lastTransitionTime"], found["lastHeartbeatTime"]) == (None, None)


async def test_who_writes_a_status_otherwise_is_its_writer(open_api_server: OpenApiServer) -> None:
    """Also where a new message of another writer's leaves the status; a condition that is gone has no writer.

    An API server may begin to record who writes what with the first server-side apply, which the agent's labels are.
    """
    async with open_api_server() as server:
        name = server.new_name("node")
        await server.add("nodes", render_node(name))
        labels = {"apiVersion": "v1", "kind": "Node", "metadata": {"name": name, "labels": {"nvidia.com/gpu": "1"}}}
        await server.ask("PATCH", path_of("nodes", name), labels, kind=APPLY, fieldManager="nodeagent")
        await write(server, name, condition("a"), condition("b"), manager="nodeagent")
        await write(server, name, condition("a", message="m"), condition("b", status="False"), manager="other")
        both = parse_node((await server.ask("GET", path_of("nodes", name))).document)
        assert (both.written_conditions, both.condition_writers) == (("a",), {"b": "other"})
        assert [each.type for each in both.other_conditions] == ["a", "b"]
        await write(server, name, {"type": "b", "$patch": "delete"}, manager="third")
        left = parse_node((await server.ask("GET", path_of("nodes", name))).document)
        assert (left.written_conditions, left.condition_writers) == (("a",), {})
