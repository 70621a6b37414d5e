"""What happened, a sentence for each event of the bus, and which event led to which; pure."""

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from nodeagent.components.web.shapes import EnvelopeLike
from nodeagent.model.driver import DriverState
from nodeagent.model.events import (
    AllocationDiffered,
    AllocationRefused,
    ConfigurationRejected,
    ConfigurationReloaded,
    DevicesAdvertised,
    DevicesAllocated,
    DevicesFreed,
    DriverChanged,
    FaultInjected,
    GpuAppeared,
    GpuEventReported,
    GpuVanished,
    LabelsApplied,
    MigLayoutChanged,
    VerdictChanged,
    XidReported,
)
from nodeagent.model.gpu import Inventory
from nodeagent.model.health import HealthReport, Verdict
from nodeagent.model.ids import parse_device_id
from nodeagent.model.values import Value

Names = Mapping[str, str]
"""What to call a device: `GPU 3` says more than its UUID."""

PAGE_CHAINS = 14
CHAIN_LENGTH = 10
QUIET = frozenset(
    {"NodeSample", "ComponentReport", "AllocationTable", "PluginState", "LabelState", "CdiState", "RuntimeState"}
)
"""States whose facts, or whose own place on the page, tell the story better."""


class Link(Value, frozen=True):
    """One event of a chain, in words, and how deep in it."""

    seq: int
    time_seconds: float
    text: str
    depth: int = 0


def build_names(inventory: Inventory | None) -> Names:
    """Short names of all devices."""
    if inventory is None:
        return {}
    names = {str(gpu.uuid): f"GPU {gpu.index}" for gpu in inventory.gpus}
    for gpu in inventory.gpus:
        names |= {str(device.uuid): f"GPU {gpu.index} {device.profile}" for device in gpu.mig_devices}
    return names


def build_chains(
    history: Sequence[EnvelopeLike], names: Names, limit: int = PAGE_CHAINS
) -> tuple[tuple[Link, ...], ...]:
    """The last chains of causes, newest first; what says nothing to a person hands its cause on to what it led to."""
    parents: dict[int, int | None] = {}
    told: dict[int, str] = {}
    for envelope in history:
        parents[envelope.seq] = envelope.cause
        text = describe_event(envelope.value, names)
        if text:
            told[envelope.seq] = text
    times = {envelope.seq: envelope.time for envelope in history}
    chains: dict[int, list[Link]] = {}
    depths: dict[int, tuple[int, int]] = {}
    for seq, text in told.items():
        parent = _find_told(parents, told, seq)
        root, depth = (depths[parent][0], depths[parent][1] + 1) if parent in depths else (seq, 0)
        depths[seq] = root, depth
        chains.setdefault(root, []).append(Link(seq=seq, time_seconds=times[seq], text=text, depth=depth))
    newest = sorted(chains.values(), key=lambda chain: chain[-1].seq, reverse=True)
    return tuple(tuple(chain[:CHAIN_LENGTH]) for chain in newest[:limit])


def _find_told(parents: Mapping[int, int | None], told: Mapping[int, str], seq: int) -> int:
    cause = parents.get(seq)
    while cause is not None and cause not in told:
        cause = parents.get(cause)
    return -1 if cause is None else cause


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
    ConfigurationReloaded: lambda one, _names: (
        f"configuration reloaded, changed: {', '.join(one.changed) or 'nothing'}"
    ),
    ConfigurationRejected: lambda one, _names: f"configuration rejected: {'; '.join(one.problems)}",
    DriverState: lambda one, _names: f"driver {str(one.phase).replace('_', ' ')}{_because(one.detail)}",
    Inventory: _describe_inventory,
    HealthReport: _describe_health,
}
"""The words for each event; one that is not here goes by its name."""
