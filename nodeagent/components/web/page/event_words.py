"""A sentence for each event of the bus; pure."""

from collections.abc import Callable, Sequence
from typing import Any

from nodeagent.core.values import ActiveConditions, Envelope, name_type
from nodeagent.model import events
from nodeagent.model.cluster import ClusterLink
from nodeagent.model.driver import DriverState
from nodeagent.model.gpu import Inventory
from nodeagent.model.health import NOT_LOOKED_AT, HealthReport, Verdict
from nodeagent.model.nvidia import LABEL_PREFIX
from nodeagent.model.telemetry import EventWatch
from nodeagent.model.wording import render_bytes
from nodeagent.rules.ids import GONE, Names, find_uuid

LABELS_LISTED = 6
_ENDS = {"done": "cut", "undone": "left as it was", "half": "left half way", "reboot": "waits for a boot"}
QUIET = frozenset(
    {
        "AllocationTable",
        "CdiState",
        "ChosenDoors",
        "ClaimBook",
        "ClaimStanding",
        "ClaimTable",
        "ClusterNode",
        "ClusterWishes",
        "ComponentReport",
        "CordonTable",
        "DeviceReadingTable",
        "DeviceTable",
        "GpuProofs",
        "LabelState",
        "MigState",
        "MpsState",
        "NodeSample",
        "Offering",
        "PartOffers",
        "PartReasons",
        "PartTable",
        "PartUsage",
        "PluginState",
        "PodConditionCounts",
        "PodEventCounts",
        "PodLabelTable",
        "PublishedSlices",
        "ReceiptCounts",
        "RepairState",
        "RuntimeState",
        "UpgradeState",
    }
)
"""States whose facts, or whose own place on the page, tell the story better."""


class Teller:
    """Puts events into words in their order; for conditions, the difference from the conditions before."""

    def __init__(self, names: Names) -> None:
        self.names = names
        self._codes: tuple[str, ...] | None = None

    def tell(self, envelope: Envelope[Any]) -> str:
        """The sentence for an event; empty for events not worth a sentence."""
        value = envelope.value
        if isinstance(value, ActiveConditions):
            return self._describe_conditions(tuple(dict.fromkeys(one.code for one in value.conditions)))
        text = describe_event(value, self.names)
        times = "once" if envelope.repeats == 1 else f"{envelope.repeats} times"
        return f"{text} (and {times} before)" if text and envelope.repeats else text

    def _describe_conditions(self, codes: tuple[str, ...]) -> str:
        before, self._codes = self._codes, codes
        if before is None:
            return f"conditions: {', '.join(codes)}" if codes else ""
        raised = [code for code in codes if code not in before]
        cleared = [code for code in before if code not in codes]
        words = [f"condition {code}" for code in raised] + [f"no longer {code}" for code in cleared]
        return ", ".join(words)


def describe_event(value: Any, names: Names) -> str:
    """The sentence for an event alone; empty for events not worth a sentence."""
    kind = type(value)
    if name_type(kind) in QUIET:
        return ""
    describe = WORDS.get(kind)
    return describe(value, names) if describe is not None else name_type(kind)


def _list(devices: Sequence[str], names: Names) -> str:
    found = [names.get(find_uuid(device), device) for device in devices]
    return ", ".join(dict.fromkeys(found))


def _call(device: str, names: Names) -> str:
    return names.get(device, device)


def _because(reason: str) -> str:
    return f": {reason}" if reason else ""


def _list_labels(keys: Sequence[str]) -> str:
    """Keys without the common prefix, with the time stamp last."""
    words = sorted((key.removeprefix(LABEL_PREFIX) for key in keys), key=lambda word: (word == "gfd.timestamp", word))
    return ", ".join(words[:LABELS_LISTED]) + (" …" if len(words) > LABELS_LISTED else "")


def _describe_inventory(value: Inventory, _names: Names) -> str:
    lost = sum(bool(gpu.lost) for gpu in value.gpus)
    return f"inventory {value.generation}: {len(value.gpus)} GPUs" + (f", {lost} lost" if lost else "")


def _describe_health(value: HealthReport, _names: Names) -> str:
    if all(one.reason == NOT_LOOKED_AT for one in value.devices):
        return ""  # before the first poll, which says more
    fit = sum(one.verdict in {Verdict.HEALTHY, Verdict.SUSPECT} for one in value.devices)
    return f"health judged: {fit} of {len(value.devices)} devices fit for work"


WORDS: dict[type, Callable[[Any, Names], str]] = {
    events.XidReported: lambda one, names: f"XID {one.xid} on {_call(one.gpu, names)}{_because(one.message)}",
    events.GpuFaultReported: lambda one, names: (
        f"fault of {_call(one.gpu, names) if one.gpu else f'NVSwitch {one.address}'}: {one.name}"
    ),
    events.GpuEventReported: lambda one, names: (
        f"{one.kind.replace('_', ' ')}{f' {one.data}' if one.data else ''} reported of {_call(one.gpu, names)}"
    ),
    events.GpuAppeared: lambda one, names: f"{_call(one.gpu, names)} appeared",
    events.GpuVanished: lambda one, names: (
        f"{_call(one.gpu, names).removesuffix(GONE)} {'is gone' if one.is_gone else 'is lost'}{_because(one.reason)}"
    ),
    events.MigLayoutChanged: lambda one, names: f"MIG layout of {_call(one.gpu, names)} changed",
    events.GpuSeenStale: lambda one, names: f"{_call(one.gpu, names)} is cut otherwise than was seen last",
    events.MigChangeEnded: lambda one, names: (
        f"{_call(one.gpu, names)} {_ENDS.get(one.outcome, one.outcome)} for"
        f" {f'layout {one.layout}' if one.layout else one.device}{_because(one.detail)}"
    ),
    events.MpsDaemonStarted: lambda one, names: f"MPS daemon of {_list(one.gpus, names)} ready",
    events.MpsDaemonEnded: lambda one, names: (
        f"MPS daemon of {_list(one.gpus, names)}: {one.reason}, lost by {', '.join(one.pods) or 'nobody'}"
    ),
    events.VerdictChanged: lambda one, names: (
        f"{_call(one.device, names)} {one.before} → {one.after}{_because(one.reason)}"
    ),
    events.GpuCleared: lambda one, names: (
        f"{_call(one.gpu, names)} taken back into service by {one.who}{_because(one.reason)}"
    ),
    events.GpuForgotten: lambda one, names: f"{_call(one.gpu, names)} gone for good, says {one.who}",
    events.AllocationModeChosen: lambda one, names: (
        f"door {one.door or 'as configured'} chosen for {_call(one.gpu, names)} by {one.who}"
    ),
    events.RepairStepped: lambda one, names: f"fault session {one.session} of {_list(one.gpus, names)} {one.step}",
    events.DriverUpgradeStepped: lambda one, _: f"upgrade {one.upgrade} of the driver {one.step}",
    events.GpuCordoned: lambda one, names: f"{_call(one.gpu, names)} cordoned {one.detail}",
    events.GpuUncordoned: lambda one, names: (
        f"{_call(one.gpu, names)} no longer cordoned by {one.source}{_because(one.reason)}"
    ),
    events.AllocationModeChanged: lambda one, names: (
        f"{_call(one.gpu, names)}: door {one.before} → {one.after}{_because(one.reason)}"
    ),
    events.CdiSpecsWritten: lambda one, _names: (
        f"CDI specifications written: {', '.join([*one.written, *one.removed])}"
    ),
    events.RuntimeConfigured: lambda one, _names: f"container runtime configured: {', '.join(one.paths)}",
    events.RuntimeRestarted: lambda one, _names: (
        f"container runtime restarted{f', rolled back: {one.failure}' if one.failure else ''}"
    ),
    events.DriverChanged: lambda one, _names: f"driver {one.before} → {one.after}{_because(one.detail)}",
    events.FaultInjected: lambda one, _names: f"fault injected by hand: {one.fault} {one.target}".rstrip(),
    events.DevicesAdvertised: lambda one, _names: f"kubelet told: {one.healthy} of {one.total} {one.resource} healthy",
    events.DevicesAllocated: lambda one, names: (
        f"allocation {one.number}: {_list(one.devices, names)} handed out as {one.resource}"
    ),
    events.DevicesFreed: lambda one, names: f"allocation {one.number} ended: {_list(one.devices, names)} free again",
    events.DeviceFound: lambda one, _: f"{one.name} is there",
    events.DeviceLost: lambda one, _: (
        f"{one.name} is gone" + (f" while {' and '.join(one.holders)} has it" if one.holders else "")
    ),
    events.DeviceJudged: lambda one, _: f"{one.name} {one.standing}{_because(one.reason)}",
    events.FractionBound: lambda one, names: (
        f"{one.pod.describe(one.container)} got parts of {_list(one.gpus, names)}: {one.reason}"
    ),
    events.FractionProcessEnded: lambda one, names: (
        f"process {one.pid} of {one.pod.describe(one.container)} ended, which had {render_bytes(one.memory_bytes)}"
        f" of {_call(one.gpu, names)}: {one.reason}"
    ),
    events.FractionReleased: lambda one, _: f"part {one.number} ended: {one.reason}",
    events.FractionRefused: lambda one, _: f"refused {one.count} of {one.resource}: {one.reason}",
    events.ClaimPrepared: lambda one, _: f"claim {one.claim} is ready with {', '.join(one.devices)}",
    events.ClaimUnprepared: lambda one, _: f"claim {one.claim} was put away: {one.reason}",
    events.ClaimRefused: lambda one, _: f"refused claim {one.claim}: {one.reason}",
    events.AllocationRefused: lambda one, names: f"refused {_list(one.devices, names)} as {one.resource}: {one.reason}",
    events.AllocationDiffered: lambda one, names: f"allocation {one.kind}, {_list(one.devices, names)}: {one.detail}",
    events.LabelsApplied: lambda one, _names: f"labels changed ({one.sink}): {_list_labels(one.changed)}",
    events.SlicesWritten: lambda one, _names: f"schedulers told of devices: {', '.join([*one.written, *one.removed])}",
    events.LabelsContested: lambda one, _names: f"labels written otherwise by somebody else: {', '.join(one.keys)}",
    events.ConfigurationReloaded: lambda one, _names: (
        f"configuration reloaded, changed: {', '.join(one.changed) or 'nothing'}"
    ),
    events.ConfigurationRejected: lambda one, _names: f"configuration rejected: {'; '.join(one.problems)}",
    events.NodeRequestRefused: lambda one, _names: f"{one.label}={one.value} not followed: {one.reason}",
    events.RefusedPodDeleted: lambda one, _names: f"{one.pod.describe()} deleted, refused by this node: {one.reason}",
    DriverState: lambda one, _names: f"driver {str(one.phase).replace('_', ' ')}{_because(one.detail)}",
    Inventory: _describe_inventory,
    HealthReport: _describe_health,
    EventWatch: lambda one, _names: (
        "GPU events are heard" if one.watched else f"GPU events are not heard{_because(one.reason)}"
    ),
    ClusterLink: lambda one, _names: (
        "the API server answers" if one.reachable else f"the API server is away{_because(one.detail)}"
    ),
}
"""The words for each event; other events go by their class name."""
