"""Events on pods over real HTTP against the small API server: one object for each, whose count rises."""

from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import replace

from nodeagent.edge.kube.client import ClientSettings
from nodeagent.edge.kube.errors import KubeError
from nodeagent.model.allocation import PodIdentity
from nodeagent.model.cluster import EventSeries, NodeEvent
from tests.component.edge_kube.harness import open_node
from tests.fakes.apiserver import NODE

POD = PodIdentity(namespace="ml", name="train-0", uid="uid-1")


def make_series(pod: PodIdentity = POD, about: str = "79 GPU-0", **changes: Any) -> EventSeries:
    event = NodeEvent(reason="GPUXidError", note="[gpu-health] x", about=about, pod=pod)
    return replace(EventSeries(event=event, pod=pod, first_seconds=1.5, last_seconds=1.5), **changes)


async def test_an_event_is_about_its_pod_and_reported_by_the_node(tmp_path: Path) -> None:
    """By uid, in the pod's namespace, with the time of the fault."""
    async with open_node(tmp_path) as (server, node):
        await node.write_series(make_series())
        (event,) = server.events
        assert event["regarding"] == {
            "apiVersion": "v1",
            "kind": "Pod",
            "namespace": "ml",
            "name": "train-0",
            "uid": "uid-1",
        }
        assert (event["reportingInstance"], event["reportingController"]) == (NODE, "nvidia.com/nodeagent")
        assert (event["metadata"]["namespace"], event["type"], event["reason"]) == ("ml", "Warning", "GPUXidError")
        assert event["eventTime"] == "1970-01-01T00:00:01.500000Z"
        assert "series" not in event


async def test_a_repeated_event_is_counted(tmp_path: Path) -> None:
    """On the same object, with the time of the last."""
    async with open_node(tmp_path) as (server, node):
        await node.write_series(make_series())
        await node.write_series(make_series(count=7, last_seconds=9.0, is_written=True))
        (event,) = server.events
        assert event["series"] == {"count": 7, "lastObservedTime": "1970-01-01T00:00:09.000000Z"}
        assert event["eventTime"] == "1970-01-01T00:00:01.500000Z"
        assert [each[0] for each in server.requests] == ["POST", "PATCH"]


async def test_another_life_of_the_agent_finds_the_object(tmp_path: Path) -> None:
    """It takes the event for new, and counts on the one that is there."""
    async with open_node(tmp_path) as (server, node):
        await node.write_series(make_series())
        await node.write_series(make_series(last_seconds=5.0))
        (event,) = server.events
        assert event["series"]["count"] == 2


async def test_an_object_that_is_gone_is_made_again(tmp_path: Path) -> None:
    """The API server keeps events for an hour."""
    async with open_node(tmp_path) as (server, node):
        await node.write_series(make_series(count=3, is_written=True))
        (event,) = server.events
        assert event["series"]["count"] == 3


async def test_pods_and_subjects_have_objects_of_their_own(tmp_path: Path) -> None:
    """A later pod of the same name too; a name of any length is cut."""
    async with open_node(tmp_path) as (server, node):
        for pod in (POD, replace(POD, uid="uid-2"), replace(POD, name="x" * 200)):
            for about in ("79 GPU-0", "31 GPU-0"):
                await node.write_series(make_series(pod, about))
        names = {event["metadata"]["name"] for event in server.events}
        assert len(names) == 6
        assert max(map(len, names)) < 100


async def test_the_first_write_waits_for_no_turn(tmp_path: Path) -> None:
    """64 pods of a GPU are told while everything else would wait for minutes."""
    slow = ClientSettings(timeout_seconds=1, requests_per_second=0.1, burst=1)
    async with open_node(tmp_path, slow) as (server, node):
        for number in range(64):
            await node.write_series(make_series(replace(POD, uid=f"uid-{number}")))
        assert len(server.events) == 64
        await node.write_series(make_series(count=2, is_written=True))
        with pytest.raises(KubeError, match="write the event GPUXidError on the pod ml/train-0"):
            await node.write_series(make_series(count=3, is_written=True))
