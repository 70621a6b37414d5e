"""What happened, a sentence for each event of the bus, and which led to which; pure."""

from collections.abc import Callable, Mapping, Sequence
from collections.abc import Set as AbstractSet
from typing import Any

from nodeagent.components.web.shapes import EnvelopeLike
from nodeagent.model.driver import DriverState
from nodeagent.model.events import (
    AllocationDiffered,
    AllocationRefused,
    CdiSpecsWritten,
    ConfigurationRejected,
    ConfigurationReloaded,
    DevicesAdvertised,
    DevicesAllocated,
    DevicesFreed,
    DriverChanged,
    FaultInjected,
    GpuAppeared,
    GpuCleared,
    GpuEventReported,
    GpuVanished,
    LabelsApplied,
    LabelsContested,
    MigLayoutChanged,
    RuntimeConfigured,
    RuntimeRestarted,
    VerdictChanged,
    XidReported,
)
from nodeagent.model.gpu import Inventory
from nodeagent.model.health import HealthReport, Verdict
from nodeagent.model.ids import parse_device_id
from nodeagent.model.values import Value

Names = Mapping[str, str]
"""What to call a device: `GPU 3` says more than its UUID."""

PAGE_MOMENTS = 12
MOMENT_LENGTH = 16
MOMENT_SECONDS = 1.0
"""What follows so closely belongs together, also where nobody said what caused what."""
QUIET = frozenset(
    {
        "NodeSample",
        "ComponentReport",
        "AllocationTable",
        "ClaimTable",
        "PluginState",
        "LabelState",
        "PodLabelTable",
        "CdiState",
        "RuntimeState",
    }
)
"""States whose facts, or whose own place on the page, tell the story better."""


class Link(Value, frozen=True):
    """One event in words, and how many led to it."""

    seq: int
    time_seconds: float
    text: str
    depth: int = 0


Moment = tuple[Link, ...]
"""What happened together, in order."""


def build_names(inventory: Inventory | None) -> Names:
    """Short names of all devices."""
    if inventory is None:
        return {}
    names = {str(gpu.uuid): f"GPU {gpu.index}" for gpu in inventory.gpus}
    for gpu in inventory.gpus:
        names |= {str(device.uuid): f"GPU {gpu.index} {device.profile}" for device in gpu.mig_devices}
    return names


def build_moments(history: Sequence[EnvelopeLike], names: Names, limit: int = PAGE_MOMENTS) -> tuple[Moment, ...]:
    """The last moments, newest first; within one, causes stand before what they led to.

    What says nothing to a person hands its cause on to what it led to.
    """
    chains = sorted(_build_chains(history, names), key=lambda chain: chain[0].seq)
    moments: list[list[Link]] = []
    for chain in chains:
        if moments and chain[0].time_seconds - moments[-1][-1].time_seconds <= MOMENT_SECONDS:
            moments[-1].extend(chain)
        else:
            moments.append(list(chain))
    return tuple(tuple(moment[:MOMENT_LENGTH]) for moment in reversed(moments[-limit:]))


def _build_chains(history: Sequence[EnvelopeLike], names: Names) -> list[list[Link]]:
    parents = {envelope.seq: envelope.cause for envelope in history}
    told: set[int] = set()
    chains: dict[int, list[Link]] = {}
    places: dict[int, tuple[int, int]] = {}
    for envelope in history:
        text = describe_event(envelope.value, names)
        if not text:
            continue
        parent = _find_told(parents, told, envelope.seq)
        root, depth = (envelope.seq, 0) if parent is None else (places[parent][0], places[parent][1] + 1)
        told.add(envelope.seq)
        places[envelope.seq] = root, depth
        link = Link(seq=envelope.seq, time_seconds=envelope.time, text=text, depth=depth)
        chains.setdefault(root, []).append(link)
    return list(chains.values())


def _find_told(parents: Mapping[int, int | None], told: AbstractSet[int], seq: int) -> int | None:
    cause = parents.get(seq)
    while cause is not None and cause not in told:
        cause = parents.get(cause)
    return cause


def describe_event(value: Any, names: Names) -> str:
    """One sentence; empty for what is not worth one."""
    kind = type(value)
    if kind.__name__ in QUIET:
        return ""
    describe = WORDS.get(kind)
    if describe is not None:
        return describe(value, names)
    # of the kernel, which pure files know by shape alone
    if kind.__name__ == "ActiveConditions":
        return "conditions: " + (", ".join(str(one.code) for one in value.conditions) or "none")
    return str(kind.__name__)


def _list(devices: Sequence[str], names: Names) -> str:
    found = [names.get(parse_device_id(device)[0], device) for device in devices]
    return ", ".join(dict.fromkeys(found))


def _call(device: str, names: Names) -> str:
    return names.get(device, device)


def _because(reason: str) -> str:
    return f": {reason}" if reason else ""


def _describe_inventory(value: Inventory, _names: Names) -> str:
    lost = sum(bool(gpu.lost) for gpu in value.gpus)
    return f"inventory {value.generation}: {len(value.gpus)} GPUs" + (f", {lost} lost" if lost else "")


def _describe_health(value: HealthReport, _names: Names) -> str:
    fit = sum(one.verdict in {Verdict.HEALTHY, Verdict.SUSPECT} for one in value.devices)
    return f"health judged: {fit} of {len(value.devices)} devices fit for work"


WORDS: dict[type, Callable[[Any, Names], str]] = {
    XidReported: lambda one, names: f"XID {one.xid} on {_call(one.gpu, names)}{_because(one.message)}",
    GpuEventReported: lambda one, names: f"{one.kind.replace('_', ' ')} ({one.data}) on {_call(one.gpu, names)}",
    GpuAppeared: lambda one, names: f"{_call(one.gpu, names)} appeared",
    GpuVanished: lambda one, names: f"{_call(one.gpu, names)} vanished{_because(one.reason)}",
    MigLayoutChanged: lambda one, names: f"MIG layout of {_call(one.gpu, names)} changed",
    VerdictChanged: lambda one, names: f"{_call(one.device, names)} {one.before} → {one.after}{_because(one.reason)}",
    GpuCleared: lambda one, names: (
        f"{_call(one.gpu, names)} taken back into service by {one.who}{_because(one.reason)}"
    ),
    CdiSpecsWritten: lambda one, _names: f"CDI specifications written: {', '.join([*one.written, *one.removed])}",
    RuntimeConfigured: lambda one, _names: f"container runtime configured: {', '.join(one.paths)}",
    RuntimeRestarted: lambda one, _names: (
        f"container runtime restarted{f', rolled back: {one.failure}' if one.failure else ''}"
    ),
    DriverChanged: lambda one, _names: f"driver {one.before} → {one.after}{_because(one.detail)}",
    FaultInjected: lambda one, _names: f"fault injected by hand: {one.fault} {one.target}".rstrip(),
    DevicesAdvertised: lambda one, _names: f"kubelet told: {one.healthy} of {one.total} {one.resource} healthy",
    DevicesAllocated: lambda one, names: (
        f"allocation {one.number}: {_list(one.devices, names)} handed out as {one.resource}"
    ),
    DevicesFreed: lambda one, names: f"allocation {one.number} ended: {_list(one.devices, names)} free again",
    AllocationRefused: lambda one, names: f"refused {_list(one.devices, names)} as {one.resource}: {one.reason}",
    AllocationDiffered: lambda one, names: f"allocation {one.kind}, {_list(one.devices, names)}: {one.detail}",
    LabelsApplied: lambda one, _names: (
        f"labels changed ({one.sink}): {', '.join(one.changed[:6])}{' …' if one.changed[6:] else ''}"
    ),
    LabelsContested: lambda one, _names: f"labels written otherwise by somebody else: {', '.join(one.keys)}",
    ConfigurationReloaded: lambda one, _names: (
        f"configuration reloaded, changed: {', '.join(one.changed) or 'nothing'}"
    ),
    ConfigurationRejected: lambda one, _names: f"configuration rejected: {'; '.join(one.problems)}",
    DriverState: lambda one, _names: f"driver {str(one.phase).replace('_', ' ')}{_because(one.detail)}",
    Inventory: _describe_inventory,
    HealthReport: _describe_health,
}
"""The words for each event; one that is not here goes by its name."""
