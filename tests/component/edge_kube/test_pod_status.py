"""The condition of a pod over real HTTP against the small API server: on exactly this pod, at once."""

from pathlib import Path

import pytest

from nodeagent.edge.kube.client import ClientSettings
from nodeagent.edge.kube.errors import ApiUnreachable
from nodeagent.edge.kube.pods import KubePodStatus, PodStatusForbidden
from nodeagent.model.allocation import PodIdentity
from nodeagent.model.cluster import EventSeries, NodeEvent
from tests.component.edge_kube.harness import open_client
from tests.fakes.apiserver import NODE, FakeApiServer

POD = PodIdentity(namespace="ml", name="train", uid="uid-1")
FAULT = EventSeries(
    event=NodeEvent(reason="GPUFault", note="[gpu-health] x", pod=POD), pod=POD, first_seconds=1.5, last_seconds=9.0
)
READY = {"type": "Ready", "status": "True"}


def add_pod(server: FakeApiServer, uid: str = "uid-1") -> None:
    metadata = {"namespace": "ml", "name": "train", "uid": uid}
    server.pods["train"] = {"metadata": metadata, "spec": {"nodeName": NODE}, "status": {"conditions": [READY]}}


async def test_a_condition_stands_beside_the_kubelet_s(tmp_path: Path) -> None:
    """With the time of the fault; written again, it is the same condition."""
    async with open_client(tmp_path) as (server, client):
        add_pod(server)
        for _ in range(2):
            assert await KubePodStatus(client).write_fault(FAULT)
        assert server.pods["train"]["status"]["conditions"] == [
            READY,
            {
                "type": "nodeagent.io/GPUFault",
                "status": "True",
                "reason": "GPUFault",
                "message": "[gpu-health] x",
                "lastTransitionTime": "1970-01-01T00:00:01Z",
            },
        ]
        assert server.writes == [("PATCH", "/api/v1/namespaces/ml/pods/train/status")] * 2


async def test_a_later_pod_of_the_same_name_and_a_pod_that_is_gone_get_none(tmp_path: Path) -> None:
    async with open_client(tmp_path) as (server, client):
        assert not await KubePodStatus(client).write_fault(FAULT)
        add_pod(server, uid="uid-2")
        assert not await KubePodStatus(client).write_fault(FAULT)
        assert server.pods["train"]["status"]["conditions"] == [READY]


async def test_a_refusal_names_the_file_with_the_right(tmp_path: Path) -> None:
    """A 404 of something between that names no pod proves nothing."""
    async with open_client(tmp_path) as (server, client):
        add_pod(server)
        server.answer(403)
        with pytest.raises(PodStatusForbidden, match=r"apply deploy/rbac-pod-conditions\.yaml"):
            await KubePodStatus(client).write_fault(FAULT)
        server.answer(404)
        with pytest.raises(ApiUnreachable):
            await KubePodStatus(client).write_fault(FAULT)


async def test_a_condition_does_not_wait_for_the_rate_of_requests(tmp_path: Path) -> None:
    """The pod may end at any moment."""
    slow = ClientSettings(timeout_seconds=5, requests_per_second=0.001, burst=1)
    async with open_client(tmp_path, slow) as (server, client):
        add_pod(server)
        for _ in range(5):
            assert await KubePodStatus(client).write_fault(FAULT)
