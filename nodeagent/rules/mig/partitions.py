"""The partitions of a GPU in terms of profiles, and wanted profiles in terms of instances of the GPU.

Owns the way from profiles to GPU instances with compute instances in them and back, and the assumed places of profiles
whose places the driver has not reported yet.
Refuses names unknown to the driver: the GPU's own profiles decide.
"""

import math
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from typing import Final

from msgspec.structs import replace

from nodeagent.model.gpu import Gpu, MigDevice, MigProfile
from nodeagent.model.mig import ComputeInstance, GpuInstance, GpuPartitions
from nodeagent.model.values import Value
from nodeagent.rules.mig.profiles import ProfileUnreadable, parse_profile, same_profile
from nodeagent.rules.mig.wanted import Wanted

_EIGHTHS: Final = 8
_MIB: Final = 1 << 20


class LayoutInfeasible(ValueError):
    """A layout impossible on a GPU; the message names the misfit, and a fitting profile."""


class Target(Value, frozen=True):
    """A wanted GPU instance with its compute instances."""

    profile: MigProfile
    computes: tuple[int, ...]
    """Slices of each compute instance, the largest first."""
    start: int | None = None
    """The required place; `None` for anywhere."""


def read_partitions(gpu: Gpu) -> GpuPartitions:
    """The partitions as far as MIG devices show them: an instance without a device is not seen."""
    mig = gpu.mig
    if mig is None:
        return GpuPartitions(enabled=False, pending=False)
    by_instance: dict[int, list[MigDevice]] = {}
    for device in gpu.mig_devices:
        by_instance.setdefault(device.gpu_instance_id, []).append(device)
    instances = tuple(_join(number, devices, mig.profiles) for number, devices in sorted(by_instance.items()))
    return GpuPartitions(
        enabled=mig.enabled,
        pending=mig.pending,
        instances=instances,
        profiles=mig.profiles,
        memory_bytes=gpu.memory_total_bytes,
    )


def is_shown(gpu: Gpu, partitions: GpuPartitions) -> bool:
    """Whether the inventory shows the driver's present truth about a GPU: the mode, and each device by its numbers."""
    if (gpu.mig_enabled, gpu.mig is not None and gpu.mig.pending) != (partitions.enabled, partitions.pending):
        return False
    there = {(instance.id, compute.id) for instance in partitions.instances for compute in instance.computes}
    return {(device.gpu_instance_id, device.compute_instance_id) for device in gpu.mig_devices} == there


def _join(number: int, devices: Sequence[MigDevice], profiles: Iterable[MigProfile]) -> GpuInstance:
    first = devices[0]
    profile = find_profile(first.profile, profiles)
    computes = (
        ComputeInstance(id=one.compute_instance_id, slices=one.attributes.compute_instance_slice_count)
        for one in devices
    )
    return GpuInstance(
        id=number,
        profile_id=profile.profile_id if profile is not None else -1,
        start=first.placement_start,
        size=first.placement_size or 1,
        computes=tuple(sorted(computes, key=lambda one: one.id)),
    )


def find_profile(name: str, profiles: Iterable[MigProfile]) -> MigProfile | None:
    """The profile of the GPU instance around a device of the named profile."""
    try:
        wanted = parse_profile(name).instance.name
    except ProfileUnreadable:
        wanted = name
    return next((one for one in profiles if same_profile(one.name, wanted)), None)


def assume_places(partitions: GpuPartitions) -> GpuPartitions:
    """The partitions with assumed places of profiles, where the driver reports none because MIG is off.

    The places follow from reported values: an instance takes as many eighths of the memory as needed, begins at a
    multiple of them, and has the profile's slices of compute. A plan by assumed places is made anew once MIG is on.
    """
    slices, total_bytes = count_slices(partitions.profiles), partitions.memory_bytes
    if partitions.enabled or not total_bytes:
        return partitions
    profiles = (one if one.placements else _assume(one, slices, total_bytes) for one in partitions.profiles)
    return replace(partitions, profiles=tuple(profiles))


def _assume(profile: MigProfile, slices: int, total_bytes: int) -> MigProfile:
    size = min(_EIGHTHS, math.ceil(_EIGHTHS * profile.memory_mib * _MIB / total_bytes)) or 1
    most = slices // profile.slice_count
    starts = tuple(range(0, _EIGHTHS - size + 1, size))[:most]
    return replace(profile, placements=starts, placement_size=size)


def count_slices(profiles: Iterable[MigProfile]) -> int:
    """Slices of compute of the whole GPU."""
    return max((one.slice_count for one in profiles), default=0)


def list_profile_names(partitions: GpuPartitions) -> Counter[str]:
    """The number of MIG devices of each profile; an instance without a device counts by itself."""
    names = {one.profile_id: one.name for one in partitions.profiles}
    counts: Counter[str] = Counter()
    for instance in partitions.instances:
        name = names.get(instance.profile_id, f"instance {instance.id} of an unknown profile")
        if not instance.computes:
            counts[f"{name} without a device"] += 1
        for compute in instance.computes:
            counts[_name_part(name, compute.slices)] += 1
    return counts


def _name_part(name: str, slices: int) -> str:
    try:
        return parse_profile(name).with_compute(slices).name
    except ProfileUnreadable:
        return name


def is_met(wanted: Wanted, partitions: GpuPartitions) -> bool:
    """Whether the GPU is as wanted: the mode in force, and as many of each profile, no more and no fewer."""
    if wanted.enabled is not partitions.enabled:
        return False
    return not wanted.enabled or list_profile_names(partitions) == _count_wanted(wanted, partitions.profiles)


def _count_wanted(wanted: Wanted, profiles: Iterable[MigProfile]) -> Counter[str]:
    known = tuple(profiles)
    counts: Counter[str] = Counter()
    for name, count in wanted.profiles.items():
        found = find_profile(name, known)
        counts[name if found is None else _name_part(found.name, _compute_slices(name, found))] += count
    return counts


def _compute_slices(name: str, profile: MigProfile) -> int:
    try:
        return parse_profile(name).compute_slices
    except ProfileUnreadable:
        return profile.slice_count


def list_targets(wanted: Wanted, profiles: Sequence[MigProfile]) -> tuple[Target, ...]:
    """The wanted GPU instances, the widest first; compute instances share as few GPU instances as possible.

    Raises:
        LayoutInfeasible: the GPU has no such profile.
    """
    parts: dict[int, list[int]] = {}
    known = {one.profile_id: one for one in profiles}
    for name, count in wanted.profiles.items():
        profile = find_profile(name, profiles)
        if profile is None:
            raise LayoutInfeasible(_explain_unknown(name, profiles))
        parts.setdefault(profile.profile_id, []).extend([_compute_slices(name, profile)] * count)
    targets = [
        Target(profile=known[number], computes=computes)
        for number, slices in parts.items()
        for computes in _pack(slices, known[number].slice_count)
    ]
    return tuple(sorted(targets, key=_order))


def _order(target: Target) -> tuple[int, int, str, tuple[int, ...]]:
    return (-target.profile.placement_size, -target.profile.slice_count, target.profile.name, target.computes)


def _pack(slices: Iterable[int], room: int) -> list[tuple[int, ...]]:
    """Put compute instances into GPU instances, the large ones first, each into the first with room for it."""
    filled: list[list[int]] = []
    for one in sorted(slices, reverse=True):
        bin_ = next((found for found in filled if sum(found) + one <= room), None)
        if bin_ is None:
            filled.append([one])
        else:
            bin_.append(one)
    return [tuple(found) for found in filled]


def _explain_unknown(name: str, profiles: Sequence[MigProfile]) -> str:
    names = [one.name for one in profiles]
    if not names:
        return f"it tells no profiles, so {name} cannot be found among them: switch MIG on first, or mend the driver"
    return f"it has no profile {name}, it has {', '.join(names)}{_suggest(name, names)}"


def _suggest(name: str, names: Iterable[str]) -> str:
    """The profile with the same slices: boards differ in memory, a layout for another board is the usual mistake."""
    try:
        wanted = parse_profile(name).instance
        known = [parse_profile(one) for one in names]
    except ProfileUnreadable:
        return ""
    alike = [one for one in known if replace(one, gigabytes=wanted.gigabytes) == wanted]
    if not alike:
        return ""
    return f"; did you mean {min(alike, key=lambda one: abs(one.gigabytes - wanted.gigabytes)).name!r}?"


def aim_at(partitions: GpuPartitions) -> tuple[Target, ...]:
    """Targets equal to the present partitions, place by place: for the way back."""
    known: Mapping[int, MigProfile] = {one.profile_id: one for one in partitions.profiles}
    return tuple(
        Target(
            profile=known[one.profile_id],
            computes=tuple(sorted((compute.slices for compute in one.computes), reverse=True)),
            start=one.start,
        )
        for one in partitions.instances
        if one.profile_id in known
    )
