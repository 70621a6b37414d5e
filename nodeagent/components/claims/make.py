"""The dependencies of the claims component, and the things made for a claim beside the record.

Made are MIG devices, MPS daemons, limits of fractions, and the specification. Owns the order: the record is written
first, as not ready while things are still to be made; every step is safe to repeat, and all are repeated from the start
after an interruption.
"""

from collections.abc import Awaitable, Callable, Mapping
from contextlib import suppress
from typing import NamedTuple, Protocol

from msgspec import field

from nodeagent.components.claims.metadata import ClaimMetadata
from nodeagent.components.claims.prepare import (
    Powers,
    list_capacities,
    list_groups,
    name_partition,
    plan_partition,
    with_uuids,
)
from nodeagent.components.claims.sharing import LimitsFolders, TimeSlices, list_time_slices
from nodeagent.model.claims import ClaimStanding
from nodeagent.model.driver import DriverState
from nodeagent.model.errors import ClaimRefused, SpecsUnavailable
from nodeagent.model.gpu import Inventory
from nodeagent.model.ids import GpuUuid, MigUuid
from nodeagent.model.journal import PreparedClaim, PreparedDevice
from nodeagent.model.plugin import ContainerMount
from nodeagent.model.ports import (
    ClaimApi,
    ClaimDriver,
    ClaimedSpec,
    ClaimJournal,
    ClaimSpecs,
    ContainerReceipts,
    MpsClaims,
    PartitionMaking,
    PodListing,
)
from nodeagent.model.values import Value
from nodeagent.rules.container_receipts import name_claim_receipt


class Makers(NamedTuple):
    """The makers of each kind; a missing maker makes nothing."""

    specs: Callable[[], ClaimSpecs]
    """Raises `SpecsUnavailable` while there is no writer of specifications."""
    metadata: ClaimMetadata
    partitions: Callable[[], PartitionMaking] | None = None
    mps: Callable[[], MpsClaims] | None = None
    shares: LimitsFolders | None = None
    cuts_on_demand: bool = True
    """Whether MIG devices are made for new claims; existing MIG devices of claims end in any case."""
    gives_shares: bool = False
    """Whether new claims get fractions; existing fractions end in any case."""
    turns: TimeSlices | None = None
    sets_turns: bool = False
    """Whether new claims may ask for a time slice; time slices already set end in any case."""
    receipts: ContainerReceipts | None = None
    """What containers read about their GPUs; `None` where containers get nothing to read."""

    @property
    def powers(self) -> Powers:
        """The agent's abilities for a claim."""
        return Powers(
            makes_mig_devices=self.partitions is not None and self.cuts_on_demand,
            runs_mps=self.mps is not None,
            holds_shares=self.gives_shares,
            sets_turns=self.turns is not None and self.sets_turns,
        )


class _Extra(Value, frozen=True):
    """A container's needs for a device beyond the device."""

    environment: Mapping[str, str] = field(default_factory=dict)
    mounts: tuple[ContainerMount, ...] = ()


async def make_ready(
    claim: PreparedClaim, makers: Makers, keeper: ClaimJournal, inventory: Inventory, driver: DriverState | None
) -> PreparedClaim:
    """Make whatever is missing, and write the specification of the claim's devices.

    Raises:
        NodeagentError: A step failed, for good or for now; the next call repeats all steps.
    """
    made = await _make_partitions(claim, makers.partitions, inventory)
    extras = await _open_daemons(claim, makers.mps)
    if any(device.part is not None for device in claim.devices):
        if makers.shares is None:
            raise ClaimRefused("it has shares of GPUs, and nobody here holds containers to theirs")
        mounts = await makers.shares.open_limits(claim, inventory)
        extras = {device.device: _Extra(mounts=mounts) for device in claim.devices if device.part is not None} | extras
    if next(list_time_slices(claim), None) is not None:
        await _find_time_slices(makers).begin(claim, inventory)
    ready = with_uuids(claim, made)
    if ready != claim:
        await keeper.prepare_claim(ready, list_capacities(inventory))
    metadata = await makers.metadata.open_metadata(ready, inventory, driver)
    receipt = await _open_receipt(ready, makers.receipts, extras)
    specs = [_describe(device, extras, (receipt, metadata)) for device in ready.devices]
    await makers.specs().write_claim(claim.uid, specs)
    return ready


async def put_away(
    claim: PreparedClaim, makers: Makers, keeper: ClaimJournal, inventory: Inventory | None, why: str
) -> None:
    """Remove everything made for a claim, and then the record.

    Raises:
        NodeagentError: A step failed; the record stays.
    """
    # Without a writer the file stays until `keep_claims`: a pod must be able to end without a driver.
    with suppress(SpecsUnavailable):
        await makers.specs().remove_claim(claim.uid)
    await makers.metadata.close_metadata(claim)
    if next(list_groups(claim), None) is not None:
        if makers.mps is None:
            raise ClaimRefused("its GPUs are shared by MPS, and `mps.claims` is off now: turn it on again")
        await makers.mps().close_claim(claim.uid)
    for device in claim.devices:
        if device.is_made:
            if makers.partitions is None:
                raise ClaimRefused(f"{device.device} was made for it, and `mig.manage` is off now: turn it on again")
            await makers.partitions().remove_partition(name_partition(claim, device))
    if makers.shares is not None:
        await makers.shares.close_limits(claim)
    if next(list_time_slices(claim), None) is not None:
        await _find_time_slices(makers).end(claim, inventory)
    await keeper.unprepare_claim(claim.uid, why)


def _find_time_slices(makers: Makers) -> TimeSlices:
    if makers.turns is None:
        raise ClaimRefused("the time slice of its GPUs is set, and `claims.time_slices` is off now: turn it on again")
    return makers.turns


async def _make_partitions(
    claim: PreparedClaim, partitions: Callable[[], PartitionMaking] | None, inventory: Inventory
) -> dict[str, MigUuid]:
    made: dict[str, MigUuid] = {}
    for device in claim.devices:
        if device.is_made:
            if partitions is None:
                raise ClaimRefused(f"{device.device} is to be made, and `mig.manage` is off now: turn it on again")
            request = plan_partition(device, inventory)
            made[device.device] = (await partitions().make_partition(name_partition(claim, device), request)).uuid
    return made


async def _open_daemons(claim: PreparedClaim, mps: Callable[[], MpsClaims] | None) -> dict[str, _Extra]:
    by_gpu: dict[GpuUuid, _Extra] = {}
    for gpus, sharing in list_groups(claim):
        if mps is None or sharing.mps is None:
            raise ClaimRefused("its GPUs are shared by MPS, and `mps.claims` is off now: turn it on again")
        access = await mps().open_claim(claim.uid, gpus, sharing.mps)
        by_gpu |= dict.fromkeys(gpus, _Extra(environment=access.environment, mounts=access.mounts))
    return {device.device: by_gpu[device.gpu] for device in claim.devices if device.gpu in by_gpu}


async def _open_receipt(
    claim: PreparedClaim, receipts: ContainerReceipts | None, extras: Mapping[str, _Extra]
) -> tuple[ContainerMount, ...]:
    devices = [device.uuid or device.gpu for device in claim.devices if not device.is_admin]
    if receipts is None or not devices:
        return ()
    mounts = [mount for extra in extras.values() for mount in extra.mounts]
    return await receipts.open_receipt(name_claim_receipt(claim.uid), devices, mounts)


def _describe(
    device: PreparedDevice,
    extras: Mapping[str, _Extra],
    told: tuple[tuple[ContainerMount, ...], Mapping[str, tuple[ContainerMount, ...]]],
) -> ClaimedSpec:
    """The specification of a device; `told` are the receipt's mount, and the metadata's mounts by CDI name."""
    extra, qualified = extras.get(device.device, _Extra()), device.cdi_names[0]
    receipt, metadata = told
    mounts = (*receipt, *extra.mounts, *metadata.get(qualified, ()))
    name = qualified.partition("=")[2]
    return ClaimedSpec(name=name, uuid=device.uuid, environment=extra.environment, mounts=mounts)


class ServeClaims(Protocol):
    """Keeps the driver registered with the kubelet and answers the kubelet's calls, until cancelled."""

    async def __call__(
        self, driver: ClaimDriver, report: Callable[[ClaimStanding], None], opened: Callable[[], None]
    ) -> None:
        """Serve; reports each change of the registration, and calls `opened` once calls can arrive.

        Raises:
            NodeagentError: A socket cannot be served.
        """
        ...


class ClaimDependencies(NamedTuple):
    """The dependencies of the claims component."""

    keeper: ClaimJournal
    serve: ServeClaims
    read_pods: Callable[[], Awaitable[PodListing]]
    open_api: Callable[[], Awaitable[ClaimApi]] | None
    """`None` without an API server."""
