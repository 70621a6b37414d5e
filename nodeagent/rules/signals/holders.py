"""The pods to be told of a fault: those with a device of the fault, now or until a moment ago.

Owns the matching of devices with allocations, fractions and claims.
Refuses a pod without name or uid: a later pod of the same name must not be told of the faults of an earlier one.
"""

from collections.abc import Collection, Iterable, Mapping
from typing import Final

from nodeagent.model.allocation import AllocationTable, PodIdentity
from nodeagent.model.claims import ReadyClaims
from nodeagent.model.events import GpuFaultReported
from nodeagent.model.journal import FractionTable
from nodeagent.model.values import Value
from nodeagent.rules.ids import find_uuid
from nodeagent.rules.signals.severity import Severity, find_severity

ENDED_SECONDS: Final = 10.0
"""How long a pod without the device any more is told of faults: the driver may report later than the pod ends."""


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
