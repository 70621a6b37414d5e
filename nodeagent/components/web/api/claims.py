"""Claims in the API: prepared claims with holders, refused claims, and the driver's standing; pure."""

from collections.abc import Iterable, Iterator, Sequence

from nodeagent.core.values import ActiveCondition
from nodeagent.model.allocation import Allocation, AllocationSource, AllocationTable, ClaimTable, PodIdentity
from nodeagent.model.claims import ClaimStanding, ReadyClaims
from nodeagent.model.ids import DeviceId, ResourceName
from nodeagent.model.journal import PreparedClaim
from nodeagent.model.slices import PublishedSlices, SliceContent
from nodeagent.model.values import Value

REFUSED = "claim-refused"
"""The condition set for each refused claim."""


class ClaimHolder(Value, frozen=True):
    """A holder of a claim: a container by the kubelet's list, else a pod with the claim reserved."""

    pod: PodIdentity
    container: str = ""


class ClaimRecord(Value, frozen=True):
    """A claim that is ready, or is being prepared."""

    claim: PreparedClaim
    holders: tuple[ClaimHolder, ...] = ()


class RefusedRecord(Value, frozen=True):
    """A claim neither prepared nor removed at the kubelet's last request."""

    claim: str
    """`namespace/name`."""
    reason: str
    since_seconds: float


class ClaimsRecord(Value, frozen=True):
    """All claims of the node."""

    standing: ClaimStanding | None = None
    """`None` where claims are not served."""
    prepared: tuple[ClaimRecord, ...] = ()
    refused: tuple[RefusedRecord, ...] = ()


def record_claims(
    ready: ReadyClaims | None,
    table: ClaimTable | None,
    standing: ClaimStanding | None,
    conditions: Iterable[ActiveCondition],
) -> ClaimsRecord:
    """The record of all claims now."""
    prepared = sorted((ready or ReadyClaims()).claims.values(), key=lambda one: (one.namespace, one.name))
    return ClaimsRecord(
        standing=standing,
        prepared=tuple(ClaimRecord(claim=claim, holders=tuple(_list_holders(claim, table))) for claim in prepared),
        refused=tuple(
            RefusedRecord(claim=one.key, reason=one.detail.removeprefix(f"{one.key}: "), since_seconds=one.since)
            for one in sorted(conditions, key=lambda one: one.key)
            if one.code == REFUSED
        ),
    )


def join_claims(
    allocations: AllocationTable | None, ready: ReadyClaims | None, table: ClaimTable | None
) -> AllocationTable | None:
    """All holders, including holders by claim: a row for each container."""
    if ready is None or not ready.claims:
        return allocations
    living = allocations.allocations if allocations is not None else ()
    claimed = (one for claim in ready.claims.values() for one in _list_allocations(claim, table))
    return AllocationTable(allocations=(*living, *claimed))


def _list_allocations(claim: PreparedClaim, table: ClaimTable | None) -> Iterator[Allocation]:
    devices = tuple(DeviceId(device.uuid) for device in claim.devices if device.uuid)
    for holder in _list_holders(claim, table) if devices else ():
        yield Allocation(
            number=0,
            resource=ResourceName(f"claim {claim.describe()}"),
            devices=devices,
            since_seconds=claim.since_seconds,
            pod=holder.pod,
            container=holder.container,
            source=AllocationSource.CLAIM,
        )


def _list_holders(claim: PreparedClaim, table: ClaimTable | None) -> Iterator[ClaimHolder]:
    """The containers with the claim now, else the pods with the claim reserved."""
    meant = (claim.namespace, claim.name)
    known = {(pod.namespace, pod.name): pod for pod in claim.pods}
    found = dict.fromkeys(
        ClaimHolder(pod=known.get((one.pod.namespace, one.pod.name), one.pod), container=one.container)
        for one in (table.devices if table is not None else ())
        if (one.claim_namespace, one.claim) == meant
    )
    yield from found or (ClaimHolder(pod=pod) for pod in claim.pods)


class SlicesRecord(Value, frozen=True):
    """All resource slices of the node."""

    published: PublishedSlices | None = None
    """The standing of the slices; `None` where no slices are written, or not yet."""
    slices: tuple[SliceContent, ...] = ()
    """As in the API server last, in order."""


def record_slices(published: PublishedSlices | None, contents: Sequence[SliceContent]) -> SlicesRecord:
    """The record of all slices now."""
    return SlicesRecord(published=published, slices=tuple(contents))
