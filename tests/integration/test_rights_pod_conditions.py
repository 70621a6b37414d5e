"""What the shipped rights and policy let an agent write into the status of pods, on the real API server.

A Job leaves a failure uncounted by the condition. The policy holds the agent to that, on pods of its own node.
"""

import pytest

from tests.integration.cluster.errors import ApiRefused
from tests.integration.test_rights import (
    DENIED_BY_POLICY,
    FINALIZERS,
    OTHER,
    OWN,
    OWNERS,
    Callers,
    Json,
    annotate,
    callers,
    make_pod,
)

__all__ = ["callers"]

NOTE = "[gpu-health] [CRITICAL] Xid 79 (x) on GPU 0 GPU-0. xid=79 severity=critical gpu_uuid=GPU-0 gpu_index=0 node={}"
FAULT: Json = {
    "type": "nodeagent.io/GPUFault",
    "status": "True",
    "reason": "GPUFault",
    "message": NOTE.format(OWN),
    "lastTransitionTime": "2026-01-01T00:00:00Z",
}


def render(*conditions: Json) -> Json:
    return {"status": {"conditions": list(conditions)}}


def write(callers: Callers, pod: str, patch: Json) -> Json:
    return callers.agent.patch(f"{pod}/status", patch, kind="strategic")


def test_the_condition_of_a_pod_is_written_and_confirmed(callers: Callers) -> None:
    """Beside the kubelet's, which stay as they are."""
    pod = make_pod(callers.admin, OWN)
    ready = {"type": "Ready", "status": "True"}
    callers.admin.patch(f"{pod}/status", render(ready), kind="strategic")
    written = [write(callers, pod, render(FAULT)) for _ in range(2)][-1]
    found = {each["type"]: each["status"] for each in written["status"]["conditions"]}
    assert found == {"Ready": "True", "nodeagent.io/GPUFault": "True"}


@pytest.mark.parametrize(
    "patch",
    [
        render(FAULT | {"status": "False"}),
        render(FAULT | {"type": "DisruptionTarget"}),
        render(FAULT, FAULT | {"type": "nodeagent.io/Other"}),
        render(FAULT | {"message": NOTE.format(OTHER)}),
        render(FAULT | {"message": NOTE.format(OWN).replace("CRITICAL", "USER")}),
        render(FAULT | {"reason": "Whim"}),
        render(FAULT, {"type": "Ready", "status": "False"}),
        {"status": render(FAULT)["status"] | {"phase": "Failed"}},
        {"status": render(FAULT)["status"] | {"podIP": "10.0.0.1", "podIPs": [{"ip": "10.0.0.1"}]}},
        {"status": render(FAULT)["status"] | {"reason": "Evicted"}},
        render(FAULT) | FINALIZERS,
        render(FAULT) | annotate("example.com/x", "y"),
        render(FAULT) | {"metadata": {"labels": {"app": "another"}}},
    ],
    ids=[
        "false",
        "another type",
        "one more type",
        "another node's",
        "a program's fault",
        "another reason",
        "the kubelet's",
        "the phase",
        "the address",
        "the reason",
        "a finalizer",
        "an annotation",
        "a label",
    ],
)
def test_nothing_else_of_a_pod_is_written(callers: Callers, patch: Json) -> None:
    """Whoever takes over one agent ends no pod by it, and hides none from its owner."""
    pod = make_pod(callers.admin, OWN)
    callers.admin.patch(f"{pod}/status", render({"type": "Ready", "status": "True"}), kind="strategic")
    with pytest.raises(ApiRefused, match="nodeagent") as refusal:
        write(callers, pod, patch)
    assert refusal.value.status == DENIED_BY_POLICY


def test_a_write_of_the_status_makes_nobody_the_owner(callers: Callers) -> None:
    """The API server leaves out what a status does not have."""
    pod = make_pod(callers.admin, OWN)
    assert "ownerReferences" not in write(callers, pod, render(FAULT) | OWNERS)["metadata"]


def test_a_condition_is_not_taken_away(callers: Callers) -> None:
    """Nor by another word: an owner may have decided by it."""
    pod = make_pod(callers.admin, OWN)
    write(callers, pod, render(FAULT))
    for patch in (render({"type": FAULT["type"], "$patch": "delete"}), render(FAULT | {"status": "Unknown"})):
        with pytest.raises(ApiRefused, match="never takes it away") as refusal:
            write(callers, pod, patch)
        assert refusal.value.status == DENIED_BY_POLICY


def test_no_pod_of_another_node_is_written_on(callers: Callers) -> None:
    """Nor a pod of no node, nor by a token that names no node."""
    for node in (OTHER, ""):
        with pytest.raises(ApiRefused, match="of its own node") as refusal:
            write(callers, make_pod(callers.admin, node), render(FAULT))
        assert refusal.value.status == DENIED_BY_POLICY
    with pytest.raises(ApiRefused, match="of its own node"):
        callers.unbound.patch(f"{make_pod(callers.admin, OWN)}/status", render(FAULT), kind="strategic")


def test_the_pod_itself_is_not_written_by_that_right(callers: Callers) -> None:
    """The status alone: `deploy/rbac-fractions.yaml` has the right to annotations, with a policy of its own."""
    pod = make_pod(callers.admin, OWN)
    with pytest.raises(ApiRefused):
        callers.agent.patch(pod, {"metadata": {"labels": {"app": "x"}}})
