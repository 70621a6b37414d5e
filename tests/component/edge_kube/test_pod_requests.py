"""What pods ask for and whether they have finished, from a server on loopback."""

from contextlib import aclosing
from pathlib import Path
from random import Random
from typing import Any

import pytest

from nodeagent.edge.kube.errors import ApiUnreachable
from nodeagent.edge.kube.pod_requests import KubePodRequests
from nodeagent.model.fractions import ContainerRequest, PodRequest
from tests.component.edge_kube.harness import open_client
from tests.fakes.apiserver import NODE


def make_pod(name: str, status: dict[str, str] | None) -> dict[str, Any]:
    container = {"name": "main", "resources": {"limits": {"tencent.com/vcuda-core": 30}}}
    return {
        "metadata": {"name": name, "namespace": "ml", "uid": f"uid-{name}", "resourceVersion": "7"},
        "spec": {"nodeName": NODE, "initContainers": [{"name": "fetch"}], "containers": [container]},
        **({} if status is None else {"status": status}),
    }


async def read(tmp_path: Path, *documents: dict[str, Any]) -> list[PodRequest]:
    async with open_client(tmp_path) as (server, client):
        server.pods = {document["metadata"]["name"]: document for document in documents}
        async with aclosing(KubePodRequests(client, NODE, Random(1)).follow()) as tables:
            async for table in tables:
                return list(table.values())
    raise AssertionError("nothing was told")


async def test_what_is_asked_for_and_whether_it_has_ended(tmp_path: Path) -> None:
    """By the same phases as the scheduler's extender; a pod that says nothing of its state has not ended."""
    statuses: tuple[dict[str, str] | None, ...] = (
        None,
        {},
        {"phase": "Running"},
        {"phase": "Succeeded"},
        {"phase": "Failed"},
    )
    pods = await read(tmp_path, *(make_pod(f"pod-{number}", status) for number, status in enumerate(statuses)))
    assert [pod.is_finished for pod in pods] == [False, False, False, True, True]
    fetch = ContainerRequest(name="fetch", is_init=True, limits={})
    assert pods[0].containers == (fetch, ContainerRequest(name="main", limits={"tencent.com/vcuda-core": "30"}))


async def test_an_answer_that_is_no_pod_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(ApiUnreachable, match="makes no sense"):
        await read(tmp_path, {"metadata": {"name": "a"}, "spec": {"nodeName": NODE}})
