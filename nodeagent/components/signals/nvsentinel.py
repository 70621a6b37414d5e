"""Faults as NVSentinel takes them, and what NVSentinel has been told. Pure.

A check for each kind of fault, and the GPU as the impacted entities: NVSentinel ends a fault by a healthy event of the
same check with exactly the fault's entities. So the entities of a fault are stored as told, and its end names the same.

Owns the words of the events, the table of recommended actions, and the plan of what is to be told.
"""

from collections.abc import Mapping
from typing import Final

from msgspec import field, json
from msgspec.structs import replace

from nodeagent.components.signals.faults import Fault, Faults, name_key
from nodeagent.model.health import ReturnRule
from nodeagent.model.repairers import NvsentinelAction, NvsentinelEvent
from nodeagent.model.values import Value
from nodeagent.rules.signals import Severity

TOLD_VERSION: Final = 1
MEMORY: Final = "nvsentinel.json"
STORE: Final = (MEMORY, "nodeagent-nvsentinel", TOLD_VERSION)
"""Name of the file, its seal, and the version of its content."""
MESSAGE_MAX: Final = 1024
_XID: Final = "xid-"
_ACTIONS: Final = {
    ReturnRule.RESET: NvsentinelAction.COMPONENT_RESET,
    ReturnRule.POWER_CYCLE: NvsentinelAction.RESTART_BM,
}
"""The actions for critical faults by the evidence that ends a fault; for all others a person decides."""


class ReportedFault(Value, frozen=True):
    """An event for NVSentinel, and whether the platform connector has taken the event."""

    event: NvsentinelEvent
    gpu: str
    is_taken: bool = False


class ReportedFaults(Value, frozen=True):
    """All that NVSentinel is to know of this node: a fault until its end was taken. An entry for each fault."""

    told: Mapping[str, ReportedFault] = field(default_factory=dict)

    @property
    def due(self) -> tuple[tuple[str, ReportedFault], ...]:
        """The events that the platform connector has yet to take."""
        return tuple((key, each) for key, each in self.told.items() if not each.is_taken)

    def note_taken(self, key: str, told: ReportedFault) -> "ReportedFaults":
        """The table after the platform connector has taken the event; a fault that has ended is forgotten."""
        if self.told.get(key) != told:
            return self
        rest = {name: each for name, each in self.told.items() if name != key}
        return ReportedFaults(told=rest if told.event.is_healthy else rest | {key: replace(told, is_taken=True)})


def encode_told(table: ReportedFaults) -> bytes:
    """The same table always gives the same bytes."""
    return json.encode(table, order="sorted")


def decode_told(content: bytes) -> ReportedFaults:
    """The table in these bytes.

    Raises:
        DecodeError: The bytes are no table of this version.
    """
    return json.decode(content, type=ReportedFaults)


def choose_action(severity: Severity, rule: ReturnRule) -> NvsentinelAction:
    """What NVSentinel is asked to do about a fault."""
    if severity is not Severity.CRITICAL:
        return NvsentinelAction.NONE
    return _ACTIONS.get(rule, NvsentinelAction.CONTACT_SUPPORT)


def render_event(fault: Fault, *, is_acted_on: bool) -> NvsentinelEvent:
    """The event of a fault. Newer releases of NVSentinel derive `is_fatal` from the action, in the same way."""
    action = choose_action(fault.severity, fault.rule)
    return NvsentinelEvent(
        check=f"Nodeagent{name_key(fault.key)}",
        entities=(("GPU", str(fault.index)), ("PCI", fault.address), ("GPU_UUID", fault.gpu)),
        error_code=fault.key.removeprefix(_XID),
        message=fault.message[:MESSAGE_MAX],
        action=action,
        is_fatal=action is not NvsentinelAction.NONE,
        at_seconds=fault.since_seconds,
        is_acted_on=is_acted_on,
    )


def render_end(event: NvsentinelEvent, now_seconds: float) -> NvsentinelEvent:
    """The end of a fault: the same check with the same entities, healthy; acted on where the fault was."""
    return replace(
        event,
        is_healthy=True,
        is_fatal=False,
        action=NvsentinelAction.NONE,
        error_code="",
        message=f"no longer: {event.message}"[:MESSAGE_MAX],
        at_seconds=now_seconds,
    )


def plan_told(table: ReportedFaults, faults: Faults, now_seconds: float, *, is_acted_on: bool) -> ReportedFaults:
    """The table with the faults of now. What was told and goes on is no news, also after a restart of the agent.

    A fault of a GPU about which nothing is known now goes on: only a look at the GPU ends a fault.
    """
    present = {f"{each.gpu} {each.key}": each for each in faults.found}
    told: dict[str, ReportedFault] = {}
    for key, before in table.told.items():
        fault = present.pop(key, None)
        if fault is not None:
            told[key] = _renew(before, render_event(fault, is_acted_on=is_acted_on))
        elif before.event.is_healthy or before.gpu in faults.unknown:
            told[key] = before
        else:
            told[key] = ReportedFault(event=render_end(before.event, now_seconds), gpu=before.gpu)
    for key, fault in present.items():
        told[key] = ReportedFault(event=render_event(fault, is_acted_on=is_acted_on), gpu=fault.gpu)
    return ReportedFaults(told=told)


def _renew(before: ReportedFault, event: NvsentinelEvent) -> ReportedFault:
    """The entry of a fault that is there; news after an end, with another action, and where it may be acted on now."""
    is_acted_on_now = event.is_acted_on and not before.event.is_acted_on
    if not before.event.is_healthy and before.event.action is event.action and not is_acted_on_now:
        return before
    is_acted_on = event.is_acted_on or before.event.is_acted_on
    return ReportedFault(event=replace(event, entities=before.event.entities, is_acted_on=is_acted_on), gpu=before.gpu)
