"""The node conditions of `signals.node_conditions`: status by polarity, reason and message. Pure.

Owns the rule that a condition has one writer: a condition that another program writes is left to that program.
"""

from collections.abc import Sequence
from typing import Final

from nodeagent.components.signals.faults import Fault, Faults, name_key
from nodeagent.config.sections.repairers import NodeConditionSettings
from nodeagent.model.cluster import ClusterNode, ConditionStatus, NodeCondition
from nodeagent.model.values import Value
from nodeagent.rules.signals import Severity

HEALTHY, UNKNOWN, LOST = "GPUsHealthy", "GPUsNotKnown", "GPUsFailedForGood"
MESSAGE_MAX: Final = 1024
_XID: Final = "xid-"
_TOLD: Final = {"critical": {Severity.CRITICAL}, "warn": {Severity.CRITICAL, Severity.WARN}}


class ConditionPlan(Value, frozen=True):
    """The conditions to write, the types to remove, and the conditions that another program writes, in words."""

    written: tuple[NodeCondition, ...] = ()
    removed: tuple[str, ...] = ()
    contested: str = ""


def plan_conditions(
    configured: Sequence[NodeConditionSettings], faults: Faults | None, lost: str, node: ClusterNode
) -> ConditionPlan:
    """The differences between the node and the wanted conditions; `faults` are `None` before the first verdict."""
    there = {each.type: each for each in node.other_conditions}
    others = {kind: writer for kind, writer in node.condition_writers.items() if kind in there}
    wanted = {each.type: decide_node_condition(each, faults, lost) for each in configured if each.type not in others}
    kept = {kind for kind, condition in wanted.items() if condition is not None or faults is None}
    return ConditionPlan(
        written=tuple(each for kind, each in wanted.items() if each is not None and there.get(kind) != each),
        removed=tuple(kind for kind in node.written_conditions if kind in there and kind not in kept),
        contested="; ".join(
            f"{each.type} is written by {others[each.type]}" for each in configured if each.type in others
        ),
    )


def decide_node_condition(configured: NodeConditionSettings, faults: Faults | None, lost: str) -> NodeCondition | None:
    """The condition now; `None` where there is nothing to tell: no verdict yet, or no GPU."""
    if lost:
        return _render(configured, is_faulty=True, reason=LOST, message=lost)
    if faults is None or not faults.gpus:
        return None
    told = [each for each in faults.found if each.severity in _TOLD[configured.severity]]
    if told:
        return _render(configured, is_faulty=True, reason=_find_reason(told[0]), message=_describe(told))
    if faults.unknown:
        message = f"nothing is known of {len(faults.unknown)} of {faults.gpus} GPUs now"
        return NodeCondition(type=configured.type, status="Unknown", reason=UNKNOWN, message=message)
    return _render(configured, is_faulty=False, reason=HEALTHY, message=f"{faults.gpus} GPUs have no such fault")


def _render(configured: NodeConditionSettings, *, is_faulty: bool, reason: str, message: str) -> NodeCondition:
    status: ConditionStatus = "True" if is_faulty is (configured.true_means == "faulty") else "False"
    return NodeCondition(type=configured.type, status=status, reason=reason, message=message[:MESSAGE_MAX])


def _find_reason(fault: Fault) -> str:
    """For an XID the reason that EKS's node monitoring agent gives, as rules for repairs name that reason."""
    if fault.key.startswith(_XID):
        return f"NvidiaXID{fault.key.removeprefix(_XID)}Error"
    return f"GPU{name_key(fault.key)}"


def _describe(told: Sequence[Fault]) -> str:
    return "; ".join(each.message for each in told)
