"""Claims of dynamic resource allocation: prepared before their pods start, unprepared after the last pod.

Owns single preparation: a claim prepared again has its newest record. Owns too that a device has a single claim,
unless claims share the device or have admin access; `refuse_claim` decides so before a record is written.
"""

from collections.abc import Iterable, Mapping
from typing import Final

from nodeagent.components.allocations.roles.grants import Ended
from nodeagent.model.allocation import Allocation, AllocationSource
from nodeagent.model.ids import DeviceId, ResourceName
from nodeagent.model.journal import EndedClaim, FractionTable, GpuFraction, PreparedClaim, PreparedDevice
from nodeagent.model.values import Value
from nodeagent.rules.ids import find_uuid

ENDED_MAX: Final = 512
"""Claims that are remembered after their end; the kubelet is late by minutes at most."""


class Prepared(Value, frozen=True, tag="prepared"):
    """The devices of a claim are ready, or about to be."""

    claim: PreparedClaim


class Unprepared(Value, frozen=True, tag="unprepared"):
    """The devices of a claim were released."""

    uid: str
    at_seconds: float
    why: str


ClaimRecord = Prepared | Unprepared


class ClaimDraft:
    """The claims while records are applied."""

    def __init__(self, claims: Mapping[str, PreparedClaim], ended: Mapping[str, EndedClaim]) -> None:
        self.claims, self.ended = dict(claims), dict(ended)

    def prepare(self, record: Prepared) -> None:
        """Apply the beginning of a claim, or other details of a living one."""
        self.claims[record.claim.uid] = record.claim
        self.ended.pop(record.claim.uid, None)

    def unprepare(self, record: Unprepared) -> tuple[Ended, ...]:
        """Apply the end of a claim; returns what each of its pods held. The end of a missing claim changes nothing."""
        claim = self.claims.pop(record.uid, None)
        if claim is None:
            return ()
        self.ended[record.uid] = EndedClaim(uid=record.uid, pods=claim.pods, at_seconds=record.at_seconds)
        for oldest in list(self.ended)[:-ENDED_MAX]:
            del self.ended[oldest]
        return tuple(
            Ended(allocation=each, until_seconds=record.at_seconds, why=record.why) for each in _describe_held(claim)
        )


def _describe_held(claim: PreparedClaim) -> tuple[Allocation, ...]:
    """A prepared claim as an allocation of each of its pods, for the history; a device for monitoring is not held."""
    devices = tuple(DeviceId(each.uuid or each.gpu) for each in claim.devices if not each.is_admin)
    if not claim.is_ready or not devices:
        return ()
    return tuple(
        Allocation(
            number=0,
            resource=ResourceName(f"claim {claim.describe()}"),
            devices=devices,
            since_seconds=claim.since_seconds,
            pod=pod,
            source=AllocationSource.CLAIM,
        )
        for pod in claim.pods
    )


def refuse_claim(
    claim: PreparedClaim,
    claims: Mapping[str, PreparedClaim],
    held: Iterable[DeviceId],
    parts: FractionTable,
    capacities: Iterable[GpuFraction] = (),
) -> str:
    """Why a claim must not be recorded, in words; empty for a permitted claim.

    `claim` is new, or a living claim with more details; `held` are the devices handed out by the device plugin.
    """
    taken = {find_uuid(device) for device in held}
    bound = {fraction.gpu for binding in parts.bindings.values() for fraction in binding.parts}
    others = [(other, device) for other in claims.values() if other.uid != claim.uid for device in other.devices]
    for device in claim.devices:
        if device.is_admin:
            continue
        if taken & {device.uuid, device.gpu} or device.gpu in bound:
            return f"device {device.device} is held by a pod that got it from the device plugin"
        for other, theirs in others:
            if _excludes(device, theirs):
                # Worded as the vendor's DRA driver does, for tools match it.
                return f"requested device {device.device} is already allocated to different claim {other.uid}"
    return _find_excess(claim, (device for _, device in others), capacities)


def _find_excess(claim: PreparedClaim, others: Iterable[PreparedDevice], capacities: Iterable[GpuFraction]) -> str:
    """The amount by which a claim's fractions exceed the room left by other claims; empty where there is room."""
    used = [device.part for device in (*others, *claim.devices) if device.part is not None]
    for whole in capacities:
        fractions = [fraction for fraction in used if fraction.gpu == whole.gpu]
        for what, sum_, all_ in (
            ("cores", sum(fraction.cores for fraction in fractions), whole.cores),
            ("bytes of memory", sum(fraction.memory_bytes for fraction in fractions), whole.memory_bytes),
        ):
            if sum_ > all_ and any(fraction.gpu == whole.gpu for fraction in list_claim_fractions(claim)):
                return f"the shares of {whole.gpu} would be {sum_} {what} of {all_}"
    return ""


def list_claim_fractions(claim: PreparedClaim) -> tuple[GpuFraction, ...]:
    """The fractions of a claim."""
    return tuple(device.part for device in claim.devices if device.part is not None)


def _excludes(device: PreparedDevice, theirs: PreparedDevice) -> bool:
    """Whether another claim's device excludes the device."""
    if theirs.is_admin or device.gpu != theirs.gpu:
        return False
    if device.device != theirs.device:
        # A whole GPU and a MIG device of it exclude each other, two MIG devices do not.
        return device.uuid == device.gpu or theirs.uuid == theirs.gpu
    if any(one.sharing is not None and one.sharing.needs_whole_gpu for one in (device, theirs)):
        return True
    return not (device.share_id and theirs.share_id and device.share_id != theirs.share_id)
