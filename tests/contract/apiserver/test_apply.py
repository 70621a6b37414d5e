"""Server-side apply: who owns a label, what goes with its owner, and what is a conflict."""

from tests.support.wire.api_servers import (
    APPLY,
    MERGE,
    Answer,
    ApiServerUnderTest,
    Json,
    OpenApiServer,
    path_of,
    render_node,
)


async def apply(server: ApiServerUnderTest, name: str, manager: str, uid: str = "", **labels: str) -> Answer:
    metadata = {"name": name, "labels": labels} | ({"uid": uid} if uid else {})
    document = {"apiVersion": "v1", "kind": "Node", "metadata": metadata}
    return await server.ask("PATCH", path_of("nodes", name), document, kind=APPLY, fieldManager=manager)


def list_owned(node: Json, manager: str) -> set[str]:
    """The labels that a manager has applied."""
    entries = [
        each for each in node["metadata"]["managedFields"] if (each["manager"], each["operation"]) == (manager, "Apply")
    ]
    labels = [each["fieldsV1"].get("f:metadata", {}).get("f:labels", {}) for each in entries]
    return {key.removeprefix("f:") for each in labels for key in each if key != "."}


async def test_what_its_owner_no_longer_names_goes(open_api_server: OpenApiServer) -> None:
    """A label that is applied is owned; the next apply takes away what it does not name, and nothing of others."""
    async with open_api_server() as server:
        name = server.new_name("node")
        await server.add("nodes", render_node(name, theirs="1"))
        first = (await apply(server, name, "one", a="1", b="2")).document
        assert first["metadata"]["labels"] == {"theirs": "1", "a": "1", "b": "2"}
        assert list_owned(first, "one") == {"a", "b"}
        second = (await apply(server, name, "one", a="3")).document
        assert second["metadata"]["labels"] == {"theirs": "1", "a": "3"}
        assert list_owned(second, "one") == {"a"}
        again = (await apply(server, name, "one", a="3")).document
        assert again["metadata"]["resourceVersion"] == second["metadata"]["resourceVersion"]
        last = (await apply(server, name, "one")).document
        assert last["metadata"]["labels"] == {"theirs": "1"}
        assert list_owned(last, "one") == set()


async def test_another_managers_value_is_a_conflict(open_api_server: OpenApiServer) -> None:
    """Another value of a field that somebody owns is refused, with the owner and the field as the cause."""
    async with open_api_server() as server:
        name = server.new_name("node")
        await server.add("nodes", render_node(name))
        await apply(server, name, "one", **{"nvidia.com/gpu.count": "4"})
        refused = await apply(server, name, "two", **{"nvidia.com/gpu.count": "8"})
        assert refused.refusal[:2] == (409, "Conflict")
        field = ".metadata.labels.nvidia.com/gpu.count"
        assert refused.refusal[2] == f'Apply failed with 1 conflict: conflict with "one": {field}'
        (cause,) = refused.document["details"]["causes"]
        assert cause == {"reason": "FieldManagerConflict", "message": 'conflict with "one"', "field": field}


async def test_an_equal_value_is_shared(open_api_server: OpenApiServer) -> None:
    """Two that apply the same value own it together, and it stays until the last of them lets go."""
    async with open_api_server() as server:
        name = server.new_name("node")
        await server.add("nodes", render_node(name))
        await apply(server, name, "one", a="1")
        shared = (await apply(server, name, "two", a="1")).document
        assert list_owned(shared, "one") == list_owned(shared, "two") == {"a"}
        left = (await apply(server, name, "one")).document
        assert left["metadata"]["labels"]["a"] == "1"
        gone = (await apply(server, name, "two")).document
        assert "a" not in gone["metadata"].get("labels", {})


async def test_a_plain_write_takes_the_field(open_api_server: OpenApiServer) -> None:
    """A patch that changes a label takes it from who had applied it, who is in conflict then."""
    async with open_api_server() as server:
        name = server.new_name("node")
        await server.add("nodes", render_node(name))
        await apply(server, name, "one", a="1", b="1")
        patch = {"metadata": {"labels": {"a": "2"}}}
        taken = await server.ask("PATCH", path_of("nodes", name), patch, kind=MERGE, fieldManager="other")
        assert list_owned(taken.document, "one") == {"b"}
        refused = await apply(server, name, "one", a="1", b="1")
        assert refused.refusal[:2] == (409, "Conflict")
        assert refused.document["details"]["causes"][0]["field"] == ".metadata.labels.a"
        no_label = {"metadata": {"labels": {"a": None}}}
        await server.ask("PATCH", path_of("nodes", name), no_label, kind=MERGE, fieldManager="other")
        assert (await apply(server, name, "one", a="1", b="1")).status == 200


async def test_a_value_of_no_manager_is_a_conflict_too(open_api_server: OpenApiServer) -> None:
    """What was there when the object was made belongs to who made it."""
    async with open_api_server() as server:
        name = server.new_name("node")
        await server.add("nodes", render_node(name, a="1"))
        assert (await apply(server, name, "one", a="2")).status == 409
        assert (await apply(server, name, "one", a="1")).status == 200


async def test_another_uid_is_another_node(open_api_server: OpenApiServer) -> None:
    """An apply for a node that has been replaced is invalid, as an uid cannot be changed."""
    async with open_api_server() as server:
        name = server.new_name("node")
        made = await server.add("nodes", render_node(name))
        refused = await apply(server, name, "one", "11111111-1111-1111-1111-111111111111", a="1")
        assert refused.refusal[:2] == (422, "Invalid")
        assert {cause["field"] for cause in refused.document["details"]["causes"]} == {"metadata.uid"}
        assert "a" not in (await server.read("nodes", name))["metadata"].get("labels", {})
        assert (await apply(server, name, "one", made["metadata"]["uid"], a="1")).status == 200


async def test_an_apply_needs_a_manager(open_api_server: OpenApiServer) -> None:
    """Without its name nothing could be owned."""
    async with open_api_server() as server:
        name = server.new_name("node")
        await server.add("nodes", render_node(name))
        document = {"apiVersion": "v1", "kind": "Node", "metadata": {"name": name, "labels": {"a": "1"}}}
        refused = await server.ask("PATCH", path_of("nodes", name), document, kind=APPLY)
        assert refused.refusal[0] == 422
