"""Slices of devices as an API server keeps them."""

import pytest

from nodeagent.edge.kube.errors import ApiRefused
from tests.support.wire.api_servers import ApiServerUnderTest, Json, OpenApiServer, path_of, render_claim

SLICES = path_of("resourceslices")


def render(server: ApiServerUnderTest, node: str, *devices: Json, driver: str = "gpu.nvidia.com") -> Json:
    return {
        "apiVersion": "resource.k8s.io/v1",
        "kind": "ResourceSlice",
        "metadata": {"name": server.new_name("slice")},
        "spec": {
            "driver": driver,
            "nodeName": node,
            "pool": {"name": node, "generation": 1, "resourceSliceCount": 1},
            "devices": list(devices or ({"name": "gpu-0"},)),
        },
    }


async def test_slices_are_selected_by_driver_and_node(open_api_server: OpenApiServer) -> None:
    async with open_api_server() as server:
        node = server.new_name("node")
        ours = await server.add("resourceslices", render(server, node))
        await server.add("resourceslices", render(server, node, driver="other.example.com"))
        await server.add("resourceslices", render(server, server.new_name("node")))
        answer = await server.ask("GET", SLICES, fieldSelector=f"spec.driver=gpu.nvidia.com,spec.nodeName={node}")
        assert [item["metadata"]["name"] for item in answer.document["items"]] == [ours["metadata"]["name"]]
        selector = f"spec.driver=other.example.com,spec.nodeName={node}"
        async with server.watching(SLICES, "0", fieldSelector=selector) as lines:
            assert (await anext(lines))["object"]["spec"]["driver"] == "other.example.com"


async def test_what_a_version_does_not_know_is_dropped(open_api_server: OpenApiServer) -> None:
    """A field that the kind does not have is left out of what is stored, and no error."""
    async with open_api_server() as server:
        document = render(server, server.new_name("node"), {"name": "gpu-0", "colour": "red"})
        document["spec"]["mood"] = "good"
        made = await server.ask("POST", SLICES, document)
        assert made.status == 201
        assert made.document["spec"]["devices"] == [{"name": "gpu-0"}]
        assert "mood" not in made.document["spec"]


async def test_what_has_no_meaning_is_refused_by_its_cause(open_api_server: OpenApiServer) -> None:
    """Each thing that is wrong is named with its field, and the client tells the first words of it."""
    async with open_api_server() as server:
        document = render(server, server.new_name("node"), {"name": "GPU 0"})
        refused = await server.ask("POST", SLICES, document)
        assert refused.refusal[:2] == (422, "Invalid")
        name = document["metadata"]["name"]
        assert refused.refusal[2].startswith(f'ResourceSlice.resource.k8s.io "{name}" is invalid: ')
        details = refused.document["details"]
        assert (details["name"], details["group"], details["kind"]) == (name, "resource.k8s.io", "ResourceSlice")
        (cause,) = details["causes"]
        assert (cause["reason"], cause["field"]) == ("FieldValueInvalid", "spec.devices[0].name")
        async with server.client() as client:
            with pytest.raises(ApiRefused, match=r"is invalid: spec\.devices"):
                await client.request("POST", SLICES, attempted="create a slice", body=document)


async def test_a_slice_is_written_at_its_version(open_api_server: OpenApiServer) -> None:
    """One that was written since is a conflict, one that is gone is missing, and another uid is a conflict."""
    async with open_api_server() as server:
        made = await server.add("resourceslices", render(server, server.new_name("node")))
        name, path = made["metadata"]["name"], path_of("resourceslices", made["metadata"]["name"])
        made["spec"]["pool"]["generation"] = 2
        changed = await server.ask("PUT", path, made)
        assert (changed.status, changed.document["metadata"]["uid"]) == (200, made["metadata"]["uid"])
        same = await server.ask("PUT", path, changed.document)
        assert same.document["metadata"]["resourceVersion"] == changed.document["metadata"]["resourceVersion"]
        late = await server.ask("PUT", path, made)
        modified = "the object has been modified; please apply your changes to the latest version and try again"
        message = f'Operation cannot be fulfilled on resourceslices.resource.k8s.io "{name}": {modified}'
        assert late.refusal == (409, "Conflict", message)
        other = changed.document
        other["metadata"]["uid"] = "11111111-1111-1111-1111-111111111111"
        assert (await server.ask("PUT", path, other)).refusal[:2] == (409, "Conflict")
        await server.drop("resourceslices", name)
        assert (await server.ask("PUT", path, changed.document)).refusal[:2] == (404, "NotFound")


async def test_a_slice_is_deleted_as_it_was_seen(open_api_server: OpenApiServer) -> None:
    """Another uid or another version is a conflict; what was deleted is answered, and then missing."""
    async with open_api_server() as server:
        made = await server.add("resourceslices", render(server, server.new_name("node")))
        name, metadata = made["metadata"]["name"], made["metadata"]
        path = path_of("resourceslices", name)

        def options(**preconditions: str) -> Json:
            return {"apiVersion": "v1", "kind": "DeleteOptions", "preconditions": preconditions}

        other = await server.ask("DELETE", path, options(uid="11111111-1111-1111-1111-111111111111"))
        assert other.refusal[:2] == (409, "Conflict")
        late = await server.ask("DELETE", path, options(uid=metadata["uid"], resourceVersion="1"))
        assert late.refusal[:2] == (409, "Conflict")
        known = options(uid=metadata["uid"], resourceVersion=metadata["resourceVersion"])
        gone = await server.ask("DELETE", path, known)
        assert (gone.status, gone.document["kind"]) == (200, "ResourceSlice")
        assert (await server.ask("DELETE", path, known)).refusal[:2] == (404, "NotFound")


async def test_a_taint_is_given_its_time(open_api_server: OpenApiServer) -> None:
    """The server writes when a taint was added, and keeps the time that it is given."""
    async with open_api_server() as server:
        taint = {"key": "nodeagent.io/unhealthy", "effect": "NoSchedule"}
        made = await server.add(
            "resourceslices", render(server, server.new_name("node"), {"name": "gpu-0", "taints": [taint]})
        )
        (found,) = made["spec"]["devices"][0]["taints"]
        assert found["timeAdded"].endswith("Z")
        made["spec"]["devices"][0]["taints"] = [found | {"timeAdded": "2026-01-01T00:00:00Z"}]
        kept = (await server.ask("PUT", path_of("resourceslices", made["metadata"]["name"]), made)).document
        assert kept["spec"]["devices"][0]["taints"][0]["timeAdded"] == "2026-01-01T00:00:00Z"


async def test_a_claim_is_read_whole(open_api_server: OpenApiServer) -> None:
    """What was asked for comes back, with an uid and a version."""
    async with open_api_server() as server:
        name = server.new_name("claim")
        await server.add("resourceclaims", render_claim(name))
        found = await server.read("resourceclaims", name)
        assert found["spec"]["devices"]["requests"][0]["name"] == "gpu"
        assert found["metadata"]["uid"]
        assert "allocation" not in found.get("status", {})
