"""What the shipped rights and policies let an agent do so that pods leave a GPU, on the real API server."""

import json
from pathlib import Path

import pytest

from nodeagent.model.slots import Domain
from tests.deploy.chart import needs_helm
from tests.deploy.helm import render_chart
from tests.integration.cluster.control import Cluster
from tests.integration.cluster.errors import ApiRefused
from tests.integration.test_rights import DENIED_BY_POLICY, NAMESPACE, OTHER, OWN, Callers, callers, evict, make_pod

__all__ = ["callers"]

FORBIDDEN = 403


def test_a_pod_is_read_and_evicted(callers: Callers) -> None:
    pod = make_pod(callers.admin, OWN)
    assert callers.agent.get(pod)["spec"]["nodeName"] == OWN
    assert evict(callers.agent, pod)["status"] == "Success"


@pytest.mark.parametrize(("node", "why"), [(OTHER, "of its own node"), (OWN, "whose controller makes another")])
def test_no_pod_of_another_node_and_none_of_nobody_is_deleted(callers: Callers, node: str, why: str) -> None:
    """By the policy of repairs and by that of refused pods, which say it in the same words."""
    with pytest.raises(ApiRefused, match=why) as refusal:
        callers.agent.delete(make_pod(callers.admin, node))
    assert refusal.value.status == DENIED_BY_POLICY


RACK = {"label": "example.com/rack", "slots": 2, "values": ["r1", "r2"]}
SLOTS = json.dumps([RACK, {"label": "cluster", "slots": 1}])
LEASES = f"/apis/coordination.k8s.io/v1/namespaces/{NAMESPACE}/leases"


@needs_helm
def test_the_slots_of_the_chart_are_written_and_no_other_lease(
    callers: Callers, api_server: Cluster, tmp_path: Path
) -> None:
    """By the agent's own code in its own way: read, taken, given back; a person's mark on a Lease stays."""
    file = tmp_path / "slots.yaml"
    rendered = render_chart("--set-json", f"repairs.slots.domains={SLOTS}", "-s", "templates/repair-slots.yaml")
    file.write_text(rendered.stdout)
    api_server.run("kubectl", "apply", "-f", str(file))
    name = Domain(key="example.com/rack", value="r2", slots=2).name_slot(1)
    off = {"metadata": {"annotations": {"nodeagent.io/repairs": "off"}}}
    callers.admin.patch(f"{LEASES}/{name}", off)
    spec = {"holderIdentity": "own/boot/1/0", "leaseDurationSeconds": 600, "renewTime": "2026-01-01T00:00:00.000000Z"}
    version = callers.agent.get(f"{LEASES}/{name}")["metadata"]["resourceVersion"]
    written = callers.agent.patch(f"{LEASES}/{name}", {"metadata": {"resourceVersion": version}, "spec": spec})
    assert written["spec"]["holderIdentity"] == "own/boot/1/0"
    assert written["metadata"]["annotations"]["nodeagent.io/repairs"] == "off"
    other = {"apiVersion": "coordination.k8s.io/v1", "kind": "Lease", "metadata": {"name": "other"}}
    callers.admin.post(LEASES, other)
    requests = (
        lambda: callers.agent.get(f"{LEASES}/other"),
        lambda: callers.agent.patch(f"{LEASES}/other", off),
        lambda: callers.agent.get(LEASES),
        lambda: callers.agent.post(LEASES, {**other, "metadata": {"name": "another"}}),
        lambda: callers.agent.delete(f"{LEASES}/{name}"),
    )
    for request in requests:
        with pytest.raises(ApiRefused) as refusal:
            request()
        assert refusal.value.status == FORBIDDEN
