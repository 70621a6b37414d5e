"""Objects of an API server: read, made, changed and refused, as the agent's client meets it."""

import json

import pytest

from tests.support.wire.api_servers import (
    APPLY,
    MERGE,
    ApiServerUnderTest,
    OpenApiServer,
    path_of,
    render_node,
    render_pod,
)


async def test_an_object_says_what_it_is(open_api_server: OpenApiServer) -> None:
    """An object by itself has its kind, an uid and a version; among others in a list it has no kind."""
    async with open_api_server() as server:
        name = server.new_name("node")
        made = await server.add("nodes", render_node(name, team="blue"))
        found = await server.read("nodes", name)
        assert (found["kind"], found["apiVersion"]) == ("Node", "v1")
        for key in ("uid", "resourceVersion", "creationTimestamp"):
            assert found["metadata"][key] == made["metadata"][key]
        answer = await server.ask("GET", path_of("nodes"), fieldSelector=f"metadata.name={name}")
        listed = answer.document
        assert (listed["kind"], listed["apiVersion"]) == ("NodeList", "v1")
        assert int(listed["metadata"]["resourceVersion"]) >= int(found["metadata"]["resourceVersion"])
        (item,) = listed["items"]
        assert (item["metadata"]["name"], item["metadata"]["labels"]["team"]) == (name, "blue")
        assert "kind" not in item
        assert "apiVersion" not in item


async def test_nothing_selected_is_an_empty_list(open_api_server: OpenApiServer) -> None:
    """A list of objects is empty, and one of their metadata alone is null."""
    async with open_api_server() as server:
        query = {"fieldSelector": f"spec.nodeName={server.new_name('node')}"}
        whole = await server.ask("GET", path_of("pods", everywhere=True), **query)
        assert whole.document["items"] == []
        accept = "application/json;as=PartialObjectMetadataList;g=meta.k8s.io;v=v1,application/json"
        alone = await server.ask("GET", path_of("pods", everywhere=True), accept=accept, **query)
        assert alone.document["kind"] == "PartialObjectMetadataList"
        assert alone.document["items"] is None


async def test_metadata_alone_leaves_out_the_rest(open_api_server: OpenApiServer) -> None:
    """Where metadata alone is wanted, neither the list nor the watch has more of a pod."""
    async with open_api_server() as server:
        node, name = server.new_name("node"), server.new_name("pod")
        await server.add("nodes", render_node(node))
        before = await server.read_version()
        await server.add("pods", render_pod(name, node, app="x"))
        accept = "application/json;as=PartialObjectMetadataList;g=meta.k8s.io;v=v1,application/json"
        query = {"fieldSelector": f"spec.nodeName={node}"}
        answer = await server.ask("GET", path_of("pods", everywhere=True), accept=accept, **query)
        (item,) = answer.document["items"]
        assert (item["metadata"]["name"], item["metadata"]["labels"]) == (name, {"app": "x"})
        assert "spec" not in item
        accept = "application/json;as=PartialObjectMetadata;g=meta.k8s.io;v=v1,application/json"
        async with server.watching(path_of("pods", everywhere=True), before, accept=accept, **query) as lines:
            line = await anext(lines)
        assert (line["type"], line["object"]["kind"]) == ("ADDED", "PartialObjectMetadata")
        assert line["object"]["metadata"]["name"] == name
        assert "spec" not in line["object"]


async def test_pods_are_selected_by_node_phase_and_label(open_api_server: OpenApiServer) -> None:
    """The selectors that the agent and the extender use, and the refusal of one that no such object has."""
    async with open_api_server() as server:
        node = server.new_name("node")
        await server.add("nodes", render_node(node))
        here, done, far = (server.new_name("pod") for _ in range(3))
        await server.add("pods", render_pod(here, node, app="a"))
        await server.add("pods", render_pod(done, node, app="b"))
        await server.add("pods", render_pod(far, app="a"))
        await server.ask("PATCH", f"{path_of('pods', done)}/status", {"status": {"phase": "Succeeded"}}, kind=MERGE)

        async def names(**query: str) -> set[str]:
            answer = await server.ask("GET", path_of("pods", everywhere=True), **query)
            return {item["metadata"]["name"] for item in answer.document["items"]} & {here, done, far}

        assert await names(fieldSelector=f"spec.nodeName={node}") == {here, done}
        assert await names(fieldSelector="status.phase!=Succeeded,status.phase!=Failed") == {here, far}
        assert await names(fieldSelector=f"spec.nodeName={node}", labelSelector="app in (b,c)") == {done}
        refused = await server.ask("GET", path_of("pods", everywhere=True), fieldSelector="spec.hue=red")
        assert refused.refusal[:2] == (400, "BadRequest")
        assert "field label not supported: spec.hue" in refused.refusal[2]


async def test_what_is_not_there_is_named(open_api_server: OpenApiServer) -> None:
    """An object that is not there is named; a kind that is not served is not, in one of two ways."""
    async with open_api_server() as server:
        name = server.new_name("gone")
        missing = await server.ask("GET", path_of("nodes", name))
        assert missing.refusal == (404, "NotFound", f'nodes "{name}" not found')
        assert missing.document["details"] == {"name": name, "kind": "nodes"}
        claim = await server.ask("GET", path_of("resourceclaims", name))
        assert claim.refusal == (404, "NotFound", f'resourceclaims.resource.k8s.io "{name}" not found')
        assert claim.document["details"] == {"name": name, "group": "resource.k8s.io", "kind": "resourceclaims"}
        unknown_kind = await server.ask("GET", "/api/v1/namespaces/default/wishes/x")
        assert unknown_kind.refusal == (404, "NotFound", "the server could not find the requested resource")
        assert not unknown_kind.document["details"].get("name")
        unknown_group = await server.ask("GET", "/apis/nobody.example/v1/things/x")
        assert (unknown_group.status, unknown_group.content) == (404, b"404 page not found\n")


async def test_a_name_can_be_taken_once(open_api_server: OpenApiServer) -> None:
    """Who creates an object that is there is told that it is."""
    async with open_api_server() as server:
        name = server.new_name("node")
        await server.add("nodes", render_node(name))
        refused = await server.ask("POST", path_of("nodes"), render_node(name))
        assert refused.refusal == (409, "AlreadyExists", f'nodes "{name}" already exists')
        assert refused.document["details"] == {"name": name, "kind": "nodes"}


async def test_a_merge_touches_what_it_names(open_api_server: OpenApiServer) -> None:
    """Keys that are named are set, or taken off by null; lists are replaced; what changes nothing is no new version."""
    async with open_api_server() as server:
        name = server.new_name("node")
        await server.add("nodes", render_node(name, keep="1", go="2"))
        patch = {"metadata": {"labels": {"go": None, "new": "3"}, "annotations": {"a": "1"}}}
        changed = (await server.ask("PATCH", path_of("nodes", name), patch, kind=MERGE)).document
        assert changed["metadata"]["labels"] == {"keep": "1", "new": "3"}
        assert changed["metadata"]["annotations"]["a"] == "1"
        again = (await server.ask("PATCH", path_of("nodes", name), patch, kind=MERGE)).document
        assert again["metadata"]["resourceVersion"] == changed["metadata"]["resourceVersion"]
        taints = {"spec": {"taints": [{"key": "k", "effect": "NoSchedule"}]}}
        tainted = (await server.ask("PATCH", path_of("nodes", name), taints, kind=MERGE)).document
        assert tainted["spec"]["taints"] == [{"key": "k", "effect": "NoSchedule"}]
        cleared = (await server.ask("PATCH", path_of("nodes", name), {"spec": {"taints": []}}, kind=MERGE)).document
        assert "taints" not in cleared["spec"]
        no_label = {"metadata": {"labels": {"keep": None, "new": None}}}
        bare = (await server.ask("PATCH", path_of("nodes", name), no_label, kind=MERGE)).document
        assert "labels" not in bare["metadata"]


@pytest.mark.parametrize("resource", ["nodes", "pods"])
async def test_a_merge_for_another_version_is_refused(open_api_server: OpenApiServer, resource: str) -> None:
    """A patch that names an older version is a conflict; one that names another uid is invalid, by its cause."""
    async with open_api_server() as server:
        name = server.new_name("object")
        made = await server.add(resource, render_node(name) if resource == "nodes" else render_pod(name))
        await server.ask("PATCH", path_of(resource, name), {"metadata": {"annotations": {"a": "1"}}}, kind=MERGE)
        late = {"metadata": {"resourceVersion": made["metadata"]["resourceVersion"], "annotations": {"a": "2"}}}
        refused = await server.ask("PATCH", path_of(resource, name), late, kind=MERGE)
        assert refused.refusal[:2] == (409, "Conflict")
        assert refused.refusal[2].endswith(
            "the object has been modified; please apply your changes to the latest version and try again"
        )
        assert refused.document["details"] == {"name": name, "kind": resource}
        other = {"metadata": {"uid": "11111111-1111-1111-1111-111111111111", "annotations": {"a": "3"}}}
        refused = await server.ask("PATCH", path_of(resource, name), other, kind=MERGE)
        assert refused.refusal[:2] == (422, "Invalid")
        for cause in refused.document["details"]["causes"]:
            assert (cause["reason"], cause["field"]) == ("FieldValueInvalid", "metadata.uid")
            assert cause["message"].endswith("field is immutable")
        assert (await server.read(resource, name))["metadata"]["annotations"]["a"] == "1"


async def test_a_patch_needs_its_object(open_api_server: OpenApiServer) -> None:
    """A merge makes nothing, and an apply that names a uid makes nothing either."""
    async with open_api_server() as server:
        name = server.new_name("gone")
        merge = await server.ask("PATCH", path_of("nodes", name), {"metadata": {"labels": {"a": "b"}}}, kind=MERGE)
        assert merge.refusal[:2] == (404, "NotFound")
        uid = "11111111-1111-1111-1111-111111111111"
        document = {"apiVersion": "v1", "kind": "Node", "metadata": {"name": name, "uid": uid, "labels": {"a": "b"}}}
        applied = await server.ask("PATCH", path_of("nodes", name), document, kind=APPLY, fieldManager="m")
        assert applied.refusal[:2] == (409, "Conflict")
        assert (await server.ask("GET", path_of("nodes", name))).status == 404


async def test_the_status_is_written_by_itself(open_api_server: OpenApiServer) -> None:
    """What is written to the object leaves its status as it is, and the other way round."""
    async with open_api_server() as server:
        name = server.new_name("node")
        await server.add("nodes", render_node(name))
        capacity = {"status": {"capacity": {"example.com/x": "4"}}, "metadata": {"labels": {"a": "1"}}}
        main = (await server.ask("PATCH", path_of("nodes", name), capacity, kind=MERGE)).document
        assert main["metadata"]["labels"]["a"] == "1"
        assert "example.com/x" not in main.get("status", {}).get("capacity", {})
        patch = {"status": {"capacity": {"example.com/x": "4"}}, "spec": {"unschedulable": True}}
        status = (await server.ask("PATCH", f"{path_of('nodes', name)}/status", patch, kind=MERGE)).document
        assert status["status"]["capacity"]["example.com/x"] == "4"
        assert "unschedulable" not in status["spec"]


async def test_what_is_no_json_is_refused(open_api_server: OpenApiServer) -> None:
    """A body that cannot be read is a bad request."""
    async with open_api_server() as server:
        answer = await server.ask("POST", path_of("nodes"), b"{not json")
        assert answer.refusal[:2] == (400, "BadRequest")


async def test_who_is_not_known_and_who_may_not(open_api_server: OpenApiServer) -> None:
    """A token that is none is 401, a right that is missing 403, and both say so in the same form."""
    async with open_api_server() as server:
        name = server.new_name("node")
        unknown = await server.ask("GET", path_of("nodes", name), token="nobody's")
        assert unknown.refusal == (401, "Unauthorized", "Unauthorized")
        denied = await server.ask("GET", path_of("nodes", name), token=server.stranger)
        assert denied.refusal[:2] == (403, "Forbidden")
        assert denied.refusal[2].startswith(f'nodes "{name}" is forbidden: User "')
        assert denied.refusal[2].endswith('cannot get resource "nodes" in API group "" at the cluster scope')
        assert denied.document["details"] == {"name": name, "kind": "nodes"}
        watch = await server.ask("GET", path_of("nodes"), token=server.stranger, watch="1")
        assert watch.refusal[:2] == (403, "Forbidden")
        assert 'cannot watch resource "nodes"' in watch.refusal[2]


async def test_a_long_answer_is_packed_for_who_wants_it(open_api_server: OpenApiServer) -> None:
    """Over 128 KiB an answer is compressed where that is asked for, and never where it is not."""
    async with open_api_server() as server:
        name = server.new_name("node")
        document = render_node(name)
        document["metadata"]["annotations"] = {"long": "x" * 140_000}
        await server.add("nodes", document)
        packed = await server.ask("GET", path_of("nodes", name), encoding="gzip")
        assert packed.headers["Content-Encoding"] == "gzip"
        assert len(packed.content) < 10_000
        plain = await server.ask("GET", path_of("nodes", name))
        assert "Content-Encoding" not in plain.headers
        assert json.loads(plain.content)["metadata"]["name"] == name
        async with server.client() as client:
            read = await client.request("GET", path_of("nodes", name), attempted="read a long node")
        assert len(read["metadata"]["annotations"]["long"]) == 140_000


async def test_groups_name_their_versions(open_api_server: OpenApiServer) -> None:
    async with open_api_server() as server:
        group = (await server.ask("GET", "/apis/resource.k8s.io")).document
        assert (group["kind"], group["name"]) == ("APIGroup", "resource.k8s.io")
        assert {"groupVersion": "resource.k8s.io/v1", "version": "v1"} in group["versions"]


async def test_one_may_ask_for_ones_rights(open_api_server: OpenApiServer) -> None:
    """A review of one's own rights is answered at once, and says what is allowed."""
    async with open_api_server() as server:
        assert await is_allowed(server, None) is True
        assert await is_allowed(server, server.stranger) is False


async def is_allowed(server: ApiServerUnderTest, token: str | None) -> bool:
    attributes = {"verb": "patch", "group": "", "resource": "nodes", "subresource": "status"}
    review = {
        "apiVersion": "authorization.k8s.io/v1",
        "kind": "SelfSubjectAccessReview",
        "spec": {"resourceAttributes": attributes},
    }
    path = "/apis/authorization.k8s.io/v1/selfsubjectaccessreviews"
    answer = await server.ask("POST", path, review, token=token)
    assert answer.status == 201
    return bool(answer.document["status"]["allowed"])
