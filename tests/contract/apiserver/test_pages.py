"""Lists in pages."""

import base64
import json

import pytest

from nodeagent.edge.kube.errors import ApiExpired
from tests.support.wire.api_servers import (
    NAMESPACE,
    ApiServerUnderTest,
    OpenApiServer,
    path_of,
    render_node,
    render_pod,
)

FEATURES = "nfd.k8s-sigs.io/v1alpha1"
PODS = path_of("pods", everywhere=True)


async def add_pods(server: ApiServerUnderTest, count: int) -> tuple[str, list[str]]:
    """Pods of a node that nobody else has pods on, in the order of their names."""
    node = server.new_name("node")
    await server.add("nodes", render_node(node))
    names = sorted(server.new_name("pod") for _ in range(count))
    for name in names:
        await server.add("pods", render_pod(name, node))
    return node, names


async def test_pages_are_of_one_version(open_api_server: OpenApiServer) -> None:
    """Pages follow one another by a token, all have the version of the first, and what came later is in none."""
    async with open_api_server() as server:
        node, names = await add_pods(server, 3)
        query = {"fieldSelector": f"spec.nodeName={node}", "limit": "2"}
        first = (await server.ask("GET", PODS, **query)).document
        assert [item["metadata"]["name"] for item in first["items"]] == names[:2]
        late = names[-1] + "-later"
        await server.add("pods", render_pod(late, node))
        await server.drop("pods", names[2])
        rest = (await server.ask("GET", PODS, **query, **{"continue": first["metadata"]["continue"]})).document
        assert [item["metadata"]["name"] for item in rest["items"]] == names[2:]
        assert rest["metadata"]["resourceVersion"] == first["metadata"]["resourceVersion"]
        assert not rest["metadata"].get("continue")


async def test_a_token_that_is_none_is_refused(open_api_server: OpenApiServer) -> None:
    async with open_api_server() as server:
        refused = await server.ask("GET", PODS, limit="2", **{"continue": "made-up"})
        assert refused.refusal[:2] == (400, "BadRequest")
        assert "continue key is not valid" in refused.refusal[2]


async def test_a_token_can_be_too_old(open_api_server: OpenApiServer) -> None:
    """Where its version is forgotten, the list is to be begun anew: 410, as with watches."""
    async with open_api_server() as server:
        for _ in range(2):
            metadata = {"name": server.new_name("feature"), "namespace": NAMESPACE}
            await server.add("nodefeatures", {"apiVersion": FEATURES, "kind": "NodeFeature", "metadata": metadata})
        path, query = path_of("nodefeatures"), {"limit": "1"}
        first = (await server.ask("GET", path, **query)).document
        await server.forget()
        following = {"continue": make_older(first["metadata"]["continue"])}
        refused = await server.ask("GET", path, **query, **following)
        assert refused.refusal[:2] == (410, "Expired")
        async with server.client() as client:
            with pytest.raises(ApiExpired):
                await client.request("GET", path, attempted="list", query=query | following)


def make_older(token: str) -> str:
    """The token as it would be had the list begun at the first version: its form is part of what is compared."""
    place = json.loads(base64.urlsafe_b64decode(token + "=" * (-len(token) % 4)))
    assert set(place) == {"v", "rv", "start"}
    return base64.urlsafe_b64encode(json.dumps(place | {"rv": 1}).encode()).decode().rstrip("=")
