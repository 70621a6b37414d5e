"""Faults of GPUs for the pods with the GPUs: severity, the pods to be told, and the words.

The severity says whose fault a fault is, as far as the driver's number tells. Its lists, and the form of the words, are
those of Flyte's reader of such events, which takes a lower severity from a writer and never a higher one.

Owns the matching of devices with allocations, fractions and claims.
Refuses a pod without name or uid: a later pod of the same name must not be told of the faults of an earlier one.
Refuses to name a process: the driver's word on the process may be about a neighbour on the same GPU.
"""

import re
from collections.abc import Collection, Iterable, Mapping
from enum import StrEnum
from typing import Final

from msgspec.structs import replace

from nodeagent.model.allocation import AllocationTable, PodIdentity
from nodeagent.model.claims import ReadyClaims
from nodeagent.model.cluster import NodeEvent
from nodeagent.model.events import GpuFaultReported
from nodeagent.model.journal import FractionTable
from nodeagent.model.values import Value
from nodeagent.rules.ids import find_uuid

ENDED_SECONDS: Final = 10.0
"""How long a pod without the device any more is told of faults: the driver may report later than the pod ends."""
XID_REASON, SXID_REASON = "GPUXidError", "GPUSXidError"
CONDITION_REASON = "GPUFault"
_PREFIX = "[gpu-health]"
_SEPARATOR = re.compile(r"[\s=]")


class Severity(StrEnum):
    """The blame for the failure of a pod beside a fault: the GPU, the program, or unknown."""

    CRITICAL = "critical"
    """Device or node failed, and the pod's program did not."""
    WARN = "warn"
    """The fault alone does not say why the pod failed."""
    USER = "user"
    """The pod's own program is the likely cause."""


USER_XIDS: Final = frozenset({13, 31, 43, 45})
CRITICAL_XIDS: Final = frozenset({48, 62, 63, 64, 74, 79, 94, 95, 109, 119, 120, 140})


def find_severity(fault: GpuFaultReported, holders: int) -> Severity:
    """The severity for each of so many pods with the device.

    The program of one pod is no fault of another: with several pods on the device nobody is named.
    """
    if not fault.gpu:
        return Severity.CRITICAL if fault.is_fatal else Severity.WARN
    if fault.number in CRITICAL_XIDS:
        return Severity.CRITICAL
    return Severity.USER if fault.number in USER_XIDS and holders == 1 else Severity.WARN


class Hold(Value, frozen=True):
    """A pod with a device, or with a part of the device."""

    pod: PodIdentity
    device: str


class Holders(Value, frozen=True):
    """The present holders, and the former holders by the time of their end."""

    present: frozenset[Hold] = frozenset()
    ended: Mapping[Hold, float] = {}


def list_holds(
    allocations: AllocationTable | None, fractions: FractionTable | None, claims: ReadyClaims | None
) -> frozenset[Hold]:
    """All holds of pods with name and uid; a claim for monitoring alone holds nothing."""
    whole = allocations.allocations if allocations is not None else ()
    bindings = fractions.bindings.values() if fractions is not None else ()
    prepared = claims.claims.values() if claims is not None else ()
    found = (
        *(Hold(pod=each.pod, device=find_uuid(one)) for each in whole if each.pod is not None for one in each.devices),
        *(Hold(pod=each.pod, device=part.gpu) for each in bindings for part in each.parts),
        *(
            Hold(pod=pod, device=device.uuid or device.gpu)
            for each in prepared
            for device in each.devices
            if not device.is_admin
            for pod in each.pods
        ),
    )
    return frozenset(each for each in found if _is_known(each.pod))


def has_nameless(allocations: AllocationTable | None, devices: Collection[str]) -> bool:
    """Whether a device is held by a pod whose name or uid the kubelet has yet to tell."""
    return any(
        (each.pod is None or not _is_known(each.pod)) and any(find_uuid(one) in devices for one in each.devices)
        for each in (allocations.allocations if allocations is not None else ())
    )


def follow_holders(before: Holders, present: frozenset[Hold], now_seconds: float) -> Holders:
    """The holders after a change, without those that ended long ago."""
    ended = {**before.ended, **dict.fromkeys(before.present - present, now_seconds)}
    recent = {hold: at for hold, at in ended.items() if now_seconds - at < ENDED_SECONDS and hold not in present}
    return Holders(present=present, ended=recent)


def choose_told(
    holders: Holders, fault: GpuFaultReported, now_seconds: float
) -> tuple[tuple[PodIdentity, ...], Severity]:
    """The pods to be told of a fault, each once, and the severity for all of them.

    A fault of a program is a matter of the present holders; of former holders only where nobody holds the device.
    """
    devices = frozenset(fault.devices)
    present = _list_pods(holders.present, devices)
    former = _list_pods((hold for hold, at in holders.ended.items() if now_seconds - at < ENDED_SECONDS), devices)
    severity = find_severity(fault, len(present or former))
    if severity is Severity.CRITICAL:
        return tuple({**present, **former}.values()), severity
    return tuple((present or former).values()), severity


def _list_pods(holds: Iterable[Hold], devices: Collection[str]) -> dict[str, PodIdentity]:
    pods = {hold.pod.uid: hold.pod for hold in holds if hold.device in devices}
    return {uid: pods[uid] for uid in sorted(pods)}


def _is_known(pod: PodIdentity) -> bool:
    return bool(pod.uid and pod.name and pod.namespace)


def render_fault(fault: GpuFaultReported, severity: Severity, pod: PodIdentity, node: str) -> NodeEvent:
    """The event of a fault on a pod."""
    if fault.gpu:
        sentence = f"Xid {fault.number} ({fault.name}) on GPU {fault.index} {fault.gpu}."
        tail = {"xid": fault.number, "severity": severity, "gpu_uuid": fault.gpu, "gpu_index": fault.index}
    else:
        sentence = f"SXid {fault.number} on NVSwitch {fault.address}."
        tail = {"sxid": fault.number, "severity": severity}
    values = tail | {"pci": fault.address, "node": node}
    keys = " ".join(f"{key}={_clean(str(value))}" for key, value in values.items())
    return NodeEvent(
        reason=XID_REASON if fault.gpu else SXID_REASON,
        note=f"{_PREFIX} [{severity.upper()}] {sentence} {keys}",
        about=f"{fault.number} {fault.gpu or fault.address}",
        pod=pod,
    )


def render_condition(event: NodeEvent) -> NodeEvent:
    """The event as a pod's condition: of many faults the first one, as one is enough for the owner of the pod."""
    return replace(event, reason=CONDITION_REASON, about="")


def _clean(value: str) -> str:
    """The value without what separates keys and values."""
    return _SEPARATOR.sub("_", value)
