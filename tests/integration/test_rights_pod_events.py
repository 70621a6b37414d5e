"""What the shipped rights and policy let an agent say of the faults of pods' GPUs, on the real API server.

Readers believe a fault that the node of the pod reports. The policy cannot look up the pod, it holds the report to the
node.
"""

import pytest

from tests.integration.cluster.errors import ApiRefused
from tests.integration.test_rights import (
    ABOUT_POD,
    DENIED_BY_POLICY,
    EVENTS,
    OTHER,
    OWN,
    Callers,
    Json,
    callers,
    render_event,
)

__all__ = ["callers"]

NOTE = "[gpu-health] [CRITICAL] Xid 79 (x) on GPU 0 GPU-0. xid=79 severity=critical gpu_uuid=GPU-0 gpu_index=0 node={}"
SERIES: Json = {"series": {"count": 2, "lastObservedTime": "2026-01-01T00:00:01.000000Z"}}


def render_fault(**changes: object) -> Json:
    fault = {"reason": "GPUXidError", "regarding": ABOUT_POD, "reportingInstance": OWN, "note": NOTE.format(OWN)}
    return render_event(OWN, **fault | changes)


@pytest.mark.parametrize("reason", ["GPUXidError", "GPUSXidError"])
def test_a_fault_is_told_and_counted(callers: Callers, reason: str) -> None:
    """On a pod, in the name of the node alone."""
    name = callers.agent.post(EVENTS, render_fault(reason=reason))["metadata"]["name"]
    assert callers.agent.patch(f"{EVENTS}/{name}", SERIES)["series"]["count"] == 2


@pytest.mark.parametrize(
    "changes",
    [
        {"reportingInstance": OTHER},
        {"reportingInstance": f"nodeagent-{OWN}"},
        {"reportingController": "kubelet"},
        {"note": NOTE.format(OTHER)},
        {"note": "the GPU is sick"},
        {"regarding": {key: value for key, value in ABOUT_POD.items() if key != "uid"}},
        {"regarding": ABOUT_POD | {"kind": "Service"}},
        {"reason": "Evicted"},
    ],
    ids=["another node", "another name", "the kubelet", "another node's", "free text", "no uid", "a service", "reason"],
)
def test_no_other_node_and_nothing_else_is_told_of(callers: Callers, changes: Json) -> None:
    """Whoever takes over one agent is believed about no pod of another node."""
    with pytest.raises(ApiRefused, match="nodeagent") as refusal:
        callers.agent.post(EVENTS, render_fault(**changes))
    assert refusal.value.status == DENIED_BY_POLICY


def test_a_fault_that_another_node_reports_is_not_changed(callers: Callers) -> None:
    """Nor is an event of the agent's own made one of another node's."""
    theirs = callers.admin.post(EVENTS, render_fault(reportingInstance=OTHER, note=NOTE.format(OTHER)))
    with pytest.raises(ApiRefused) as refusal:
        callers.agent.patch(f"{EVENTS}/{theirs['metadata']['name']}", SERIES)
    assert refusal.value.status == DENIED_BY_POLICY


def test_a_token_without_a_node_tells_of_nothing(callers: Callers) -> None:
    """Its agent could be anywhere."""
    with pytest.raises(ApiRefused, match="not bound to a node"):
        callers.unbound.post(EVENTS, render_fault())
