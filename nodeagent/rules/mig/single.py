"""A single MIG device on demand: the calls to make and to remove it, beside any other instances.

Owns the device's journal entries, and the remaining work after a kill at any step.
Refuses to move anything: where another instance lies in the way, there is no room.
"""

from collections.abc import Iterable
from enum import StrEnum
from typing import Final

import msgspec

from nodeagent.model.journal import Change, Step
from nodeagent.model.mig import GpuInstance, GpuPartitions, PartitionRequest, Write, WriteKind
from nodeagent.model.values import Value
from nodeagent.rules.mig.change import BEGIN, WRITE, ChangeUnreadable, read_writes
from nodeagent.rules.mig.partitions import LayoutInfeasible, assume_places, count_slices, find_profile
from nodeagent.rules.mig.steps import RebootNeeded

OWNER: Final = "mig-partition"
MADE: Final = "made"
REMOVE: Final = "remove"


class Phase(StrEnum):
    """The progress of the device."""

    BEGUN = "begun"
    """Being made; not reported to anybody."""
    MADE = "made"
    LEAVING = "leaving"
    """Being removed; all of it or a rest may still be there."""


class _Begun(Value, frozen=True):
    key: str
    request: PartitionRequest
    switched: bool = False


class Holding(Value, frozen=True):
    """The device of one key, present or to be made, as the journal says."""

    number: int
    key: str
    request: PartitionRequest
    switched: bool = False
    """Whether MIG was switched on for this device or for an earlier one, and is to go off after the last."""
    phase: Phase = Phase.BEGUN
    has_created: bool = False
    """Whether an instance was begun for this key: before, an instance at the place is another owner's."""


def begin_holding(key: str, request: PartitionRequest, at_seconds: float, *, switched: bool) -> Step:
    """The first step: from now on the place is the key's."""
    begun = _Begun(key=key, request=request, switched=switched)
    return Step(name=BEGIN, at_seconds=at_seconds, payload=msgspec.json.encode(begun).decode())


def phase_step(phase: Phase, at_seconds: float) -> Step:
    """The device is made, or begins to be removed."""
    return Step(name=MADE if phase is Phase.MADE else REMOVE, at_seconds=at_seconds)


def read_holding(change: Change) -> Holding:
    """The holding of a change in the journal.

    Raises:
        ChangeUnreadable: another version has written the change.
    """
    try:
        begun = msgspec.json.decode(change.steps[0].payload, type=_Begun)
        writes = [write for step in change.steps if step.name == WRITE for write in read_writes(step)]
    except (msgspec.DecodeError, IndexError) as error:
        raise ChangeUnreadable(f"change {change.number} of {change.gpu} cannot be read: {error}") from error
    phases = {MADE: Phase.MADE, REMOVE: Phase.LEAVING}
    told = [phases[step.name] for step in change.steps if step.name in phases]
    return Holding(
        number=change.number,
        key=begun.key,
        request=begun.request,
        switched=begun.switched,
        phase=told[-1] if told else Phase.BEGUN,
        has_created=any(write.kind is WriteKind.CREATE for write in writes),
    )


def find_instance(request: PartitionRequest, partitions: GpuPartitions) -> GpuInstance | None:
    """The instance of the requested shape at the requested place."""
    profile = find_profile(request.profile, partitions.profiles)
    if profile is None:
        return None
    sought = (profile.profile_id, request.start)
    return next((one for one in partitions.instances if (one.profile_id, one.start) == sought), None)


def plan_making(
    request: PartitionRequest, partitions: GpuPartitions, *, is_own: bool, was_reset: bool = False
) -> tuple[Write, ...]:
    """The calls up to the next moment at which the GPU must be read anew; none when the device is there.

    `is_own` tells whether an instance at this very place is the requested one; `was_reset`, whether a reset for the
    sake of the mode was tried already.

    Raises:
        LayoutInfeasible: there is no room beside the present instances, or the GPU has no such profile or place.
        RebootNeeded: a reset did not bring the mode into force.
    """
    if partitions.enabled:
        there = find_instance(request, partitions) if is_own else None
        return _plan_create(request, partitions) if there is None else _plan_compute(request, there, partitions)
    if partitions.profiles:
        _plan_create(request, assume_places(partitions))
    if not partitions.pending:
        return (Write(kind=WriteKind.MODE_ON),)
    if was_reset:
        raise RebootNeeded
    return (Write(kind=WriteKind.RESET),)


def _plan_create(request: PartitionRequest, partitions: GpuPartitions) -> tuple[Write, ...]:
    profile = find_profile(request.profile, partitions.profiles)
    if profile is None:
        names = ", ".join(one.name for one in partitions.profiles)
        raise LayoutInfeasible(f"it has no profile {request.profile}, it has {names or 'none that the driver tells'}")
    if profile.placements and request.start not in profile.placements:
        starts = ", ".join(map(str, profile.placements))
        raise LayoutInfeasible(f"{profile.name} cannot begin at slot {request.start}, it can at {starts}")
    slots = range(request.start, request.start + profile.placement_size)
    for other in partitions.instances:
        if other.start is None or set(slots) & set(range(other.start, other.start + other.size)):
            raise LayoutInfeasible(f"there is no room for {request.describe()}: GPU instance {other.id} lies there")
    slices = {one.profile_id: one.slice_count for one in partitions.profiles}
    taken = sum(slices.get(one.profile_id, 0) for one in partitions.instances)
    if taken + profile.slice_count > count_slices(partitions.profiles):
        raise LayoutInfeasible(f"there is no room for {request.describe()}: the other instances have all the compute")
    return (
        Write(
            kind=WriteKind.CREATE,
            profile_id=profile.profile_id,
            profile=profile.name,
            start=request.start,
            size=profile.placement_size,
        ),
        Write(kind=WriteKind.CREATE_COMPUTE, slices=profile.slice_count),
    )


def _plan_compute(request: PartitionRequest, there: GpuInstance, partitions: GpuPartitions) -> tuple[Write, ...]:
    """The missing compute instance of a GPU instance left empty by a kill between the two calls."""
    slices = {one.profile_id: one.slice_count for one in partitions.profiles}[there.profile_id]
    if not there.computes:
        return (Write(kind=WriteKind.CREATE_COMPUTE, instance=there.id, slices=slices),)
    if [one.slices for one in there.computes] != [slices]:
        raise LayoutInfeasible(
            f"{request.describe()} was divided by somebody else: destroy its compute instances first"
        )
    return ()


def plan_removal(
    holding: Holding, partitions: GpuPartitions, others: Iterable[Holding], *, was_reset: bool = False
) -> tuple[Write, ...]:
    """The calls to remove the device, as far as present; the mode set for the first device goes with the last."""
    there = find_instance(holding.request, partitions) if partitions.enabled and holding.has_created else None
    if there is not None:
        profile, start = holding.request.profile, holding.request.start
        return (
            *(Write(kind=WriteKind.DESTROY_COMPUTE, instance=there.id, compute=one.id) for one in there.computes),
            Write(kind=WriteKind.DESTROY, instance=there.id, profile=profile, start=start),
        )
    is_last = not any(one.request.gpu == holding.request.gpu for one in others)
    if not holding.switched or not is_last or partitions.instances:
        return ()
    if partitions.pending:
        return (Write(kind=WriteKind.MODE_OFF),)
    return (Write(kind=WriteKind.RESET),) if partitions.enabled and not was_reset else ()
