"""The node conditions of GPUs and of other devices, and the decision on giving the node up for good.

Owns reasons and messages. Reasons are words matched by tools; messages are sentences for people.
"""

from collections.abc import Iterable, Iterator

import msgspec

from nodeagent.config.sections.devices import DeviceClass
from nodeagent.model.cluster import DEVICE_PREFIX, ConditionStatus, NodeCondition
from nodeagent.model.cordons import render_until
from nodeagent.model.devices import DeviceClassState, DeviceTable, Standing
from nodeagent.model.driver import DriverPhase, DriverState
from nodeagent.model.gpu import Inventory
from nodeagent.model.health import HealthReport, Verdict
from nodeagent.model.plugin import PluginState
from nodeagent.model.proof import GpuProofs
from nodeagent.model.values import Value

READY, PAUSED, LOST = "GPUsReady", "Paused", "GPUsFailedForGood"
_HOPELESS = frozenset({DriverPhase.STUCK, DriverPhase.FAILED, DriverPhase.FABRIC_NOT_READY, DriverPhase.NODES_MISSING})
"""Phases that retries can end, or else a replacement of the node."""


class NodeSight(Value, frozen=True):
    """The states from which the node's condition is decided."""

    driver: DriverState
    inventory: Inventory | None = None
    """Of the offered GPUs."""
    health: HealthReport | None = None
    plugin: PluginState | None = None
    paused: str = ""
    """The label that pauses the node; empty without a pause."""


def decide_condition(sight: NodeSight) -> NodeCondition:
    """Whether pods with GPUs can work here, with the first reason why not."""
    driver = sight.driver
    if sight.paused:
        return _not_ready(PAUSED, f"{sight.paused}: all GPU handles are released")
    if driver.is_done_without:
        return NodeCondition(status="True", reason="NoGPUsNeeded", message="there is no GPU, and there need not be one")
    if not driver.ready:
        detail = ": ".join(part for part in (driver.detail, driver.remedy) if part)
        return _not_ready(f"Driver{_camel(driver.phase)}", detail or str(driver.phase))
    if sight.inventory is None:
        return NodeCondition(status="Unknown", reason="GPUsNotKnown", message="the GPUs are not enumerated yet")
    if not sight.inventory.gpus:
        return _not_ready("NoGPUs", "the driver lists no GPU that is offered")
    return _judge_devices(sight, len(sight.inventory.gpus))


def is_hopeless(condition: NodeCondition, driver: DriverState) -> bool:
    """Whether a state, if it lasts, is a case for replacing the node."""
    return condition.status == "False" and (driver.phase in _HOPELESS or condition.reason == "AllGPUsUnhealthy")


def decide_lost(condition: NodeCondition, hopeless_seconds: float, attempt_seconds: float, limit: int) -> str:
    """Why the node is given up; empty while attempts are left.

    The driver is retried each `attempt_seconds` at the latest, so that the time tells the number of attempts.
    """
    attempts = int(hopeless_seconds // attempt_seconds)
    if attempts < limit:
        return ""
    return f"{condition.reason} after {limit} attempts: {condition.message}"


def mark_lost(condition: NodeCondition, lost: str) -> NodeCondition:
    """The condition of a node given up."""
    return _not_ready(LOST, lost) if lost else condition


def _judge_devices(sight: NodeSight, count: int) -> NodeCondition:
    if sight.plugin is not None:
        waiting = [resource.name for resource in sight.plugin.resources if not resource.registered]
        if waiting:
            return _not_ready("PluginNotRegistered", f"the kubelet does not know {', '.join(waiting)} yet")
    healthy = _count_healthy(sight)
    if healthy == 0:
        return _not_ready("AllGPUsUnhealthy", f"none of {count} GPUs is fit for work")
    account = sight.plugin.account if sight.plugin is not None else None
    if account is not None and not account.devices_offered:
        reasons = "; ".join(dict.fromkeys(one.reason for one in account.unoffered))
        return _not_ready("NoGPUOffered", f"pods can get none of {account.gpus} GPUs: {reasons}")
    if healthy is not None and healthy < count:
        return NodeCondition(status="True", reason="SomeGPUsUnhealthy", message=f"{healthy} of {count} GPUs are ready")
    return NodeCondition(status="True", reason=READY, message=f"{count} GPUs are ready")


def _count_healthy(sight: NodeSight) -> int | None:
    """The number of GPUs without a fault; `None` while health is not judged."""
    if sight.health is None or sight.inventory is None or not sight.health.devices:
        return None
    unfit = (Verdict.UNHEALTHY, Verdict.UNKNOWN)
    bad = {device.gpu for device in sight.health.devices if device.verdict in unfit}
    return sum(not gpu.lost and gpu.uuid not in bad for gpu in sight.inventory.gpus)


def _not_ready(reason: str, message: str) -> NodeCondition:
    status: ConditionStatus = "False"
    return NodeCondition(status=status, reason=reason, message=message)


def _camel(phase: DriverPhase) -> str:
    return "".join(word.capitalize() for word in phase.split("_"))


def decide_device_conditions(table: DeviceTable | None, classes: Iterable[DeviceClass]) -> Iterator[NodeCondition]:
    """A condition for each class with a condition's name, as soon as its devices are known."""
    known = table.classes if table is not None else ()
    states: dict[str, DeviceClassState] = {state.resource: state for state in known}
    for each in classes:
        state = states.get(each.resource or "")
        if each.condition is not None and state is not None:
            yield _judge(f"{DEVICE_PREFIX}{each.condition}", state, each.expected)


def _judge(kind: str, state: DeviceClassState, expected: int | None) -> NodeCondition:
    working, count = state.healthy_count, max(len(state.devices), expected or 0)
    if not count:
        return NodeCondition(type=kind, status="False", reason="NoDevices", message=f"no {state.resource} is there")
    message = f"{working} of {count} {state.resource} {'works' if working == 1 else 'work'}"
    if working == count:
        return NodeCondition(type=kind, status="True", reason="DevicesReady", message=message)
    ill = [f"{one.name}: {one.reason}" for one in state.devices if one.standing is not Standing.HEALTHY]
    absent = count - len(state.devices)
    told = "; ".join((message, *ill, *([f"{absent} not found"] if absent else ())))
    if not working:
        return NodeCondition(type=kind, status="False", reason="NoDeviceWorks", message=told)
    return NodeCondition(type=kind, status="True", reason="SomeDevicesFail", message=told)


def render_proofs(proofs: GpuProofs | None) -> str:
    """The GPUs that passed an idle-time proof, each with the stage and the time; empty without any."""
    newest = {uuid: one.newest_pass for uuid, one in sorted((proofs or GpuProofs()).gpus.items())}
    passed = {uuid: {"level": one[0], "proven": render_until(one[1])} for uuid, one in newest.items() if one}
    return msgspec.json.encode(passed).decode() if passed else ""
