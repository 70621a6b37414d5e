"""The table of versions against the real API server and kubelet: each reports its feature gates among its metrics."""

import re

import pytest

from nodeagent.rules.kubernetes_versions import ABILITIES, Side, read_minor
from tests.integration.cluster.control import Cluster
from tests.integration.cluster.layout import NODE_NAME

_GATE = re.compile(r'^kubernetes_feature_enabled\{name="(\w+)",stage="\w*"\} (\d)$', re.MULTILINE)


def read_gates(metrics: str) -> dict[str, bool]:
    """The feature gates among the metrics of a program of Kubernetes."""
    return {name: value == "1" for name, value in _GATE.findall(metrics)}


@pytest.mark.parametrize("side", ["API server", "kubelet"])
def test_the_table_says_what_this_version_says_of_itself(node: Cluster, side: Side) -> None:
    """A gate that the table calls on is on or gone, one called off is known and off; nobody has changed gates here."""
    place = "/metrics" if side == "API server" else f"/api/v1/nodes/{NODE_NAME}/proxy/metrics"
    gates = read_gates(node.api.read_text(place))
    minor = read_minor(node.api.get("/version")["gitVersion"])
    assert minor is not None
    told = {each.gate: each.tell(minor) for each in ABILITIES if each.gate and each.side == side}
    assert {gate: "on" if gates.get(gate, said == "on") else "off" for gate, said in told.items() if said != "no"} == {
        gate: said for gate, said in told.items() if said != "no"
    }
