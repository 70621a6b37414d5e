"""GPUs of simulated models, whole or cut, as the planning of MIG layouts sees them."""

from collections import Counter
from collections.abc import Sequence
from functools import cache

from msgspec.structs import replace

from nodeagent.model.gpu import Gpu, Mig, MigProfile
from nodeagent.model.mig import ComputeInstance, GpuInstance, GpuPartitions
from nodeagent.rules.mig.partitions import LayoutInfeasible, list_targets
from nodeagent.rules.mig.solve import Solution, solve
from nodeagent.rules.mig.wanted import Wanted
from nodeagent_sim.gpus.hardware import GpuModel
from nodeagent_sim.gpus.mig_geometry import GEOMETRIES, list_shapes
from nodeagent_sim.gpus.profile import load_model
from tests.support.gpus import make_gpu

MIG_MODELS = (
    "a30",
    "a100-sxm4-40gb",
    "a100-sxm4-80gb",
    "h100-sxm5-80gb",
    "h100-nvl-94gb",
    "h100-96gb",
    "h200-sxm5-141gb",
    "b200",
    "gb200",
    "rtx-pro-6000-server",
)
"""Those whose rules of placement differ, or whose profiles are called otherwise."""

_MOST_SLICES = 7
"""On boards with fewer the places run out before the slices do."""


@cache
def find_model(name: str) -> GpuModel:
    return load_model(name)


@cache
def list_profiles(name: str, *, with_placements: bool = True) -> tuple[MigProfile, ...]:
    """What the driver says of the model's profiles; where they fit it says only while MIG is on."""
    return tuple(
        MigProfile(
            name=one.name,
            profile_id=one.shape.profile_id,
            slice_count=one.shape.slices,
            memory_mib=one.row.memory_mib,
            multiprocessor_count=one.row.multiprocessors,
            instances_max=one.shape.instances,
            placements=one.shape.starts if with_placements else (),
            placement_size=one.shape.size if with_placements else 1,
            copy_engine_count=one.row.copy_engines,
            decoder_count=one.row.decoders,
            encoder_count=one.row.encoders,
            jpeg_count=one.row.jpeg_engines,
            ofa_count=one.row.ofa_engines,
        )
        for one in list_shapes(find_model(name))
    )


def make_mig_gpu(index: int, model: str, *, enabled: bool = False) -> Gpu:
    """A GPU of a simulated model, not cut."""
    found = find_model(model)
    gpu = make_gpu(index, name=found.name)
    mig = None
    if found.mig is not None:
        profiles = list_profiles(model, with_placements=enabled)
        slices = GEOMETRIES[found.mig.geometry].slices
        mig = Mig(enabled=enabled, pending=enabled, profiles=profiles, devices_max=slices)
    pci = replace(gpu.pci, device_id=found.pci.device_id)
    return replace(gpu, pci=pci, mig=mig, memory_total_bytes=found.total_bytes)


def partitions_of(model: str, *, enabled: bool = True, with_placements: bool = True) -> GpuPartitions:
    """A GPU of this model without an instance on it."""
    profiles = list_profiles(model, with_placements=with_placements)
    total = find_model(model).total_bytes
    return GpuPartitions(enabled=enabled, pending=enabled, profiles=profiles, memory_bytes=total)


def request(profiles: str) -> Wanted:
    """A wish of these profiles, such as `3g.40gb 1g.10gb 1g.10gb`."""
    return Wanted(enabled=True, profiles=Counter(profiles.split()))


def cut(model: str, profiles: str) -> GpuPartitions:
    """A GPU of this model cut into these profiles; the numbers of its instances begin at 100."""
    empty = partitions_of(model)
    return follow(solve(list_targets(request(profiles), empty.profiles), empty), empty)


@cache
def list_feasible(model: str) -> tuple[tuple[str, ...], ...]:
    """Every set of instances that fits on a GPU of this model, by profile, the empty one first."""
    empty = partitions_of(model)
    names = [one.name for one in sorted(empty.profiles, key=lambda one: (-one.placement_size, -one.slice_count))]
    found: list[tuple[str, ...]] = []

    def extend(chosen: tuple[str, ...], place: int) -> None:
        found.append(chosen)
        for number in range(place, len(names)):
            more = (*chosen, names[number])
            try:
                solve(list_targets(Wanted(enabled=True, profiles=Counter(more)), empty.profiles), empty)
            except LayoutInfeasible:
                continue
            extend(more, number)

    extend((), 0)
    return tuple(found)


def follow(solution: Solution, partitions: GpuPartitions) -> GpuPartitions:
    """What a GPU is after a solution; every rule of the hardware is looked at."""
    there = {one.id: one for one in partitions.instances}
    for instance in solution.destroyed:
        del there[instance.id]
    for kept in solution.kept:
        stays = [one for one in there[kept.instance.id].computes if one not in kept.destroyed]
        number = 1 + max((one.id for one in kept.instance.computes), default=-1)
        made = [ComputeInstance(id=number + place, slices=slices) for place, slices in enumerate(kept.created)]
        there[kept.instance.id] = replace(kept.instance, computes=(*stays, *made))
    for number, placed in enumerate(solution.created, 100 + max(there, default=0)):
        profile = placed.target.profile
        assert placed.start in profile.placements
        there[number] = GpuInstance(
            id=number,
            profile_id=profile.profile_id,
            start=placed.start,
            size=profile.placement_size,
            computes=tuple(ComputeInstance(id=one, slices=slices) for one, slices in enumerate(placed.target.computes)),
        )
    after = replace(partitions, instances=tuple(there.values()))
    check(after)
    return after


def check(partitions: GpuPartitions) -> None:
    """The hardware allows them, and no instance has more in it than its slices."""
    profiles = {one.profile_id: one for one in partitions.profiles}
    assert is_allowed([(profiles[one.profile_id], one.start) for one in partitions.instances])
    for instance in partitions.instances:
        assert sum(one.slices for one in instance.computes) <= profiles[instance.profile_id].slice_count


def is_allowed(placed: Sequence[tuple[MigProfile, int | None]]) -> bool:
    """Whether no two instances overlap, and none is there more often than it may."""
    taken = [start + slot for profile, start in placed if start is not None for slot in range(profile.placement_size)]
    counts = Counter(profile.profile_id for profile, _ in placed)
    return (
        len(taken) == len(set(taken))
        and all(start in profile.placements for profile, start in placed)
        and all(counts[profile.profile_id] <= profile.instances_max for profile, _ in placed)
        and sum(profile.slice_count for profile, _ in placed) <= _MOST_SLICES
    )
