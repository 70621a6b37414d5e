"""The node conditions of the configuration: which status says what, and which are left to others."""

import pytest

from nodeagent.components.signals.faults import Fault, Faults
from nodeagent.components.signals.node_conditions import (
    MESSAGE_MAX,
    ConditionPlan,
    decide_node_condition,
    plan_conditions,
)
from nodeagent.config.sections.repairers import NodeConditionSettings
from nodeagent.model.cluster import ClusterNode, NodeCondition
from nodeagent.model.health import ReturnRule
from nodeagent.rules.signals import Severity

EKS = NodeConditionSettings(type="AcceleratedHardwareReady", true_means="healthy")
NPD = NodeConditionSettings(type="GPUProblem", true_means="faulty")
FINE = Faults(gpus=8)


def make_fault(key: str = "xid-79", severity: Severity = Severity.CRITICAL, reason: str = "it is ill") -> Fault:
    return Fault(
        gpu="GPU-3",
        key=key,
        index=3,
        address="0000:13:00.0",
        severity=severity,
        rule=ReturnRule.RESET,
        reason=reason,
        since_seconds=1.0,
    )


def with_faults(*found: Fault, unknown: tuple[str, ...] = ()) -> Faults:
    return Faults(found=found, unknown=frozenset(unknown), gpus=8)


def decide(configured: NodeConditionSettings, faults: Faults | None, lost: str = "") -> tuple[str, str, str]:
    found = decide_node_condition(configured, faults, lost)
    assert found is not None
    assert found.type == configured.type
    return found.status, found.reason, found.message


@pytest.mark.parametrize(("configured", "healthy", "faulty"), [(EKS, "True", "False"), (NPD, "False", "True")])
def test_the_polarity_turns_the_status_and_nothing_else(
    configured: NodeConditionSettings, healthy: str, faulty: str
) -> None:
    """What True means is said by the configuration alone; not knowing is Unknown in both."""
    assert decide(configured, FINE) == (healthy, "GPUsHealthy", "8 GPUs have no such fault")
    told = (faulty, "NvidiaXID79Error", "GPU 3 GPU-3 at 0000:13:00.0 has xid-79: it is ill")
    assert decide(configured, with_faults(make_fault())) == told
    unknown = ("Unknown", "GPUsNotKnown", "nothing is known of 2 of 8 GPUs now")
    assert decide(configured, with_faults(unknown=("a", "b"))) == unknown
    assert decide(configured, with_faults(make_fault(), unknown=("a",))) == told
    assert decide(configured, None, "DriverStuck after 5 attempts") == (
        faulty,
        "GPUsFailedForGood",
        "DriverStuck after 5 attempts",
    )


def test_a_warning_is_told_only_where_it_is_asked_for() -> None:
    """By default a GPU that goes on working replaces no node."""
    hot = with_faults(make_fault("hot", Severity.WARN))
    assert decide(NPD, hot)[:2] == ("False", "GPUsHealthy")
    warned = NodeConditionSettings(type="GPUProblem", true_means="faulty", severity="warn")
    assert decide(warned, hot)[:2] == ("True", "GPUHot")
    assert decide(warned, with_faults(make_fault("remap-failed")))[:2] == ("True", "GPURemapFailed")


def test_all_faults_are_named_as_far_as_there_is_room() -> None:
    """The worst gives the reason."""
    status, reason, message = decide(EKS, with_faults(make_fault("lost"), make_fault("xid-48", reason="x" * 2000)))
    assert (status, reason, len(message)) == ("False", "GPULost", MESSAGE_MAX)
    assert "has lost: it is ill; GPU 3" in message


def test_nothing_is_told_before_anything_is_known_or_without_gpus() -> None:
    assert decide_node_condition(EKS, None, "") is None
    assert decide_node_condition(EKS, Faults(), "") is None


def node_with(*conditions: NodeCondition, ours: tuple[str, ...] = (), **writers: str) -> ClusterNode:
    return ClusterNode(
        name="n", uid="u", other_conditions=conditions, written_conditions=ours, condition_writers=writers
    )


def condition(kind: str, status: str = "True", **fields: str) -> NodeCondition:
    return NodeCondition(
        **{"type": kind, "status": status, "reason": "GPUsHealthy", "message": "8 GPUs have no such fault"} | fields  # type: ignore[arg-type]
    )


def test_only_differences_are_written() -> None:
    """A new condition and one with other words; one that is there as it should be costs nothing."""
    assert plan_conditions((EKS,), FINE, "", node_with()) == ConditionPlan(written=(condition(EKS.type),))
    assert plan_conditions((EKS,), FINE, "", node_with(condition(EKS.type), ours=(EKS.type,))) == ConditionPlan()
    stale = node_with(condition(EKS.type, message="7 GPUs"), ours=(EKS.type,))
    assert plan_conditions((EKS,), FINE, "", stale) == ConditionPlan(written=(condition(EKS.type),))


def test_a_condition_that_another_program_writes_is_left_alone() -> None:
    """And is named with its writer; others of the configuration are written."""
    node = node_with(condition(EKS.type, "False"), AcceleratedHardwareReady="eks-node-monitoring-agent")
    plan = plan_conditions((EKS, NPD), FINE, "", node)
    assert [each.type for each in plan.written] == [NPD.type]
    assert plan.contested == "AcceleratedHardwareReady is written by eks-node-monitoring-agent"
    assert plan.removed == ()


def test_a_writer_of_what_is_gone_contests_nothing() -> None:
    """The record of the API server may outlive the condition."""
    plan = plan_conditions((EKS,), FINE, "", node_with(AcceleratedHardwareReady="other"))
    assert (plan.contested, len(plan.written)) == ("", 1)


def test_conditions_of_former_configurations_go() -> None:
    """Those that the agent has written, and no others; also where the node has no GPU any more."""
    ours = node_with(condition("Old"), condition("Ready"), ours=("Old", "nvidia.com/GPUReady"))
    assert plan_conditions((), None, "", ours).removed == ("Old",)
    kept = node_with(condition(EKS.type), ours=(EKS.type,))
    assert plan_conditions((EKS,), None, "", kept) == ConditionPlan()
    assert plan_conditions((EKS,), Faults(), "", kept).removed == (EKS.type,)
