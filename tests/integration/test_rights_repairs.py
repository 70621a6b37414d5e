"""What the shipped rights and policies let an agent do so that pods leave a GPU, on the real API server."""

import pytest

from tests.integration.cluster.errors import ApiRefused
from tests.integration.test_rights import DENIED_BY_POLICY, OTHER, OWN, Callers, callers, evict, make_pod

__all__ = ["callers"]


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
