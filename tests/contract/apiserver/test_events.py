"""Events as an API server takes them, and the limits of their fields."""

from random import Random
from typing import Any

import pytest
from msgspec.structs import replace

from nodeagent.core.clock import SystemClock
from nodeagent.edge.kube.node import EVENTS, KubeNode
from nodeagent.model.allocation import PodIdentity
from nodeagent.model.cluster import EventSeries, NodeEvent
from tests.support.wire.api_servers import NAMESPACE, OpenApiServer, render_node


async def test_events_are_taken_as_they_are_written(open_api_server: OpenApiServer) -> None:
    """A note of the longest kind is taken, and is found again."""
    async with open_api_server() as server, server.client() as client:
        name = server.new_name("node")
        await server.add("nodes", render_node(name))
        node = KubeNode(client, name, SystemClock(), Random())
        seen = await node.read_node()
        await node.write_event(seen, NodeEvent(reason="GPUUnhealthy", note="ü" * 600), 1)
        await node.write_event(seen, NodeEvent(reason="GPURecovered", note="GPU 1", warning=False), 3)
        answer = await server.ask("GET", EVENTS.format(NAMESPACE))
        found = [each for each in answer.document["items"] if each["regarding"].get("uid") == seen.uid]
        assert {(each["type"], each["reason"]) for each in found} == {
            ("Warning", "GPUUnhealthy"),
            ("Normal", "GPURecovered"),
        }


async def test_an_event_on_a_pod_is_one_object_with_a_count(open_api_server: OpenApiServer) -> None:
    """Made, counted on, counted on by another life that takes it for new, and made again where it is gone."""
    async with open_api_server() as server, server.client() as client:
        pod = PodIdentity(namespace=NAMESPACE, name=server.new_name("pod"), uid=server.new_name("uid"))
        event = NodeEvent(reason="GPUXidError", note="[gpu-health] x", about="79 GPU-0", pod=pod)
        series = EventSeries(event=event, pod=pod, first_seconds=1.5, last_seconds=1.5)
        node = KubeNode(client, "node-x", SystemClock(), Random())

        async def find() -> dict[str, Any]:
            items = (await server.ask("GET", EVENTS.format(NAMESPACE))).document["items"]
            (found,) = [each for each in items if each["regarding"].get("uid") == pod.uid]
            return dict(found)

        await node.write_series(series)
        made = await find()
        assert (made["reportingInstance"], made["note"], made.get("series")) == ("node-x", "[gpu-health] x", None)
        await node.write_series(replace(series, count=7, last_seconds=9.0, is_written=True))
        counted = await find()
        assert counted["series"] == {"count": 7, "lastObservedTime": "1970-01-01T00:00:09.000000Z"}
        await node.write_series(series)
        again = await find()
        assert (again["series"]["count"], again["eventTime"]) == (2, made["eventTime"])
        await server.ask("DELETE", f"{EVENTS.format(NAMESPACE)}/{made['metadata']['name']}")
        await node.write_series(replace(series, count=8, last_seconds=9.0, is_written=True))
        anew = await find()
        assert (anew["series"]["count"], anew["metadata"]["name"]) == (8, made["metadata"]["name"])
        assert anew["metadata"]["uid"] != made["metadata"]["uid"]


@pytest.mark.parametrize(
    ("field", "value", "cause"),
    [
        ("note", "x" * 1025, "can have at most 1024 characters"),
        ("action", "", "Required value"),
        ("reportingController", "no name", "name part must consist of"),
        ("series", {"count": 1, "lastObservedTime": "2026-01-01T00:00:01.000000Z"}, "should be at least 2"),
    ],
)
async def test_an_event_that_is_none_is_refused(
    open_api_server: OpenApiServer, field: str, value: object, cause: str
) -> None:
    """Each limit that our documents keep to is one of the server's."""
    async with open_api_server() as server:
        document = {
            "apiVersion": "events.k8s.io/v1",
            "kind": "Event",
            "metadata": {"name": server.new_name("event"), "namespace": NAMESPACE},
            "eventTime": "2026-01-01T00:00:00.000000Z",
            "reportingController": "nvidia.com/nodeagent",
            "reportingInstance": "nodeagent-n",
            "action": "A",
            "reason": "A",
            "type": "Normal",
            "note": "",
            "regarding": {"apiVersion": "v1", "kind": "Node", "name": "n", "uid": "u"},
        }
        assert (await server.ask("POST", EVENTS.format(NAMESPACE), document)).status == 201
        document["metadata"] = {"name": server.new_name("event"), "namespace": NAMESPACE}
        refused = await server.ask("POST", EVENTS.format(NAMESPACE), document | {field: value})
        assert refused.refusal[:2] == (422, "Invalid")
        assert cause in refused.refusal[2]
