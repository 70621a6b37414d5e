"""The pods that are chosen for this node and not bound yet, followed on a server on loopback."""

from contextlib import aclosing
from pathlib import Path
from random import Random
from typing import Any

import pytest

from nodeagent.edge.kube.pods import KubeNominatedPods, NominatedForbidden
from nodeagent.model.allocation import PodIdentity
from nodeagent.model.claims import NominatedPod
from tests.component.edge_kube.harness import open_client, take
from tests.component.edge_kube.test_unstarted_pods import add, make_pod
from tests.fakes.apiserver import NODE


def nominate(name: str, *, bound: str = "", **more: Any) -> dict[str, Any]:
    document = make_pod(name, "Pending", node=bound, nominatedNodeName=NODE, **more)
    document["spec"]["resourceClaims"] = [{"name": "a", "resourceClaimName": "own"}, {"name": "b", "x": "template"}]
    return document


async def test_a_pod_is_followed_with_its_claims_until_it_is_bound(tmp_path: Path) -> None:
    """Claims by name, of templates, and of extended resources; each once."""
    async with open_client(tmp_path) as (server, client):
        made = [{"name": "b", "resourceClaimName": "made"}, {"name": "c"}, {"name": "a", "resourceClaimName": "own"}]
        extended = {"resourceClaimName": "extended"}
        add(server, nominate("a", resourceClaimStatuses=made, extendedResourceClaimStatus=extended))
        add(server, nominate("bound", bound=NODE))
        add(server, make_pod("other", "Pending", node=""))
        pods = KubeNominatedPods(client, NODE, Random(1), silence_seconds=20)
        async with aclosing(pods.follow()) as tables:
            found = await anext(tables)
            pod = PodIdentity(namespace="ml", name="a", uid="uid-a")
            assert found == {"uid-a": NominatedPod(pod=pod, claims=("own", "made", "extended"))}
            add(server, nominate("a", bound=NODE))
            assert await anext(tables) == {}


async def test_a_missing_right_is_named(tmp_path: Path) -> None:
    async with open_client(tmp_path) as (server, client):
        for _ in range(2):
            server.answer(403, body=b'{"kind": "Status", "message": "pods is forbidden"}')
        with pytest.raises(NominatedForbidden, match=r"deploy/rbac-proof\.yaml"):
            await take(KubeNominatedPods(client, NODE, Random(1), silence_seconds=20).follow(), 1)
