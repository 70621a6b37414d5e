"""Events as an API server takes them, and the limits of their fields."""

from random import Random

import pytest

from nodeagent.core.clock import SystemClock
from nodeagent.edge.kube.node import EVENTS, KubeNode
from nodeagent.model.cluster import NodeEvent
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


@pytest.mark.parametrize(
    ("field", "value", "cause"),
    [
        ("note", "x" * 1025, "can have at most 1024 characters"),
        ("action", "", "Required value"),
        ("reportingController", "no name", "name part must consist of"),
    ],
)
async def test_an_event_that_is_none_is_refused(
    open_api_server: OpenApiServer, field: str, value: str, cause: str
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
