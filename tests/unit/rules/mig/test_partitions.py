"""What a GPU is cut into, said in profiles."""

from collections import Counter

from msgspec.structs import replace

from nodeagent.model.gpu import Gpu
from nodeagent.model.mig import ComputeInstance, GpuInstance, GpuPartitions
from nodeagent.rules.mig.partitions import (
    assume_places,
    find_profile,
    is_met,
    is_shown,
    list_profile_names,
    list_targets,
    read_partitions,
)
from nodeagent.rules.mig.wanted import Wanted
from tests.support.gpus import make_gpu, make_mig_devices
from tests.support.mig import make_mig_gpu, partitions_of, request

H100 = "h100-sxm5-80gb"


def with_devices(*profiles: str) -> Gpu:
    gpu = make_mig_gpu(0, H100, enabled=True)
    assert gpu.mig is not None
    devices = make_mig_devices(0, profiles)
    return replace(gpu, mig=replace(gpu.mig, devices=devices))


def test_partitions_are_read_from_mig_devices() -> None:
    """Those of one GPU instance are one; a place that is not told is none."""
    gpu = with_devices("1c.3g.40gb", "1c.3g.40gb", "1g.10gb", "odd.1g")
    assert gpu.mig is not None
    first, second, third, fourth = gpu.mig.devices
    second = replace(second, gpu_instance_id=first.gpu_instance_id, compute_instance_id=1)
    third = replace(third, placement_start=4, placement_size=1)
    gpu = replace(gpu, mig=replace(gpu.mig, devices=(second, first, third, fourth)))
    partitions = read_partitions(gpu)
    shared = (ComputeInstance(id=0, slices=1), ComputeInstance(id=1, slices=1))
    assert partitions.instances == (
        GpuInstance(id=7, profile_id=9, start=None, size=1, computes=shared),
        GpuInstance(id=9, profile_id=19, start=4, size=1, computes=(ComputeInstance(id=0, slices=1),)),
        GpuInstance(id=10, profile_id=-1, start=None, size=1, computes=(ComputeInstance(id=0, slices=1),)),
    )
    assert list_profile_names(partitions) == {
        "1c.3g.40gb": 2,
        "1g.10gb": 1,
        "instance 10 of an unknown profile": 1,
    }


def test_a_gpu_without_mig_has_no_partitions() -> None:
    """And one that knows it but has it off has none either."""
    assert read_partitions(make_gpu(0)) == GpuPartitions(enabled=False, pending=False)
    off = read_partitions(make_mig_gpu(0, H100))
    assert (off.enabled, off.instances) == (False, ())
    assert {one.placements for one in off.profiles} == {()}
    places = {(one.name, one.placements) for one in partitions_of(H100).profiles}
    assert {(one.name, one.placements) for one in assume_places(off).profiles} == places


def test_an_instance_without_a_device_counts_as_something_else() -> None:
    """It takes room, and no layout asks for it."""
    half = replace(partitions_of(H100), instances=(GpuInstance(id=1, profile_id=9, start=0, size=4),))
    assert list_profile_names(half) == Counter({"3g.40gb without a device": 1})
    assert not is_met(request("3g.40gb"), half)
    assert not is_met(Wanted(enabled=True), half)


def test_a_wish_is_met_by_exactly_what_it_says() -> None:
    """The mode in force, and every device; however the profile is spelled."""
    there = replace(
        partitions_of(H100),
        instances=(GpuInstance(id=1, profile_id=20, start=0, size=1, computes=(ComputeInstance(id=0, slices=1),)),),
    )
    assert is_met(request("1g.10gb+me"), there)
    assert is_met(request("1g.10gb.me"), there)
    assert not is_met(request("1g.10gb"), there)
    assert not is_met(request("1g.10gb+me 1g.10gb"), there)
    assert not is_met(request("odd"), there)
    assert not is_met(Wanted(enabled=True), there)
    assert not is_met(Wanted(enabled=False), there)
    assert is_met(Wanted(enabled=False), replace(there, enabled=False))


def test_profiles_of_a_form_that_nobody_knows_yet_are_themselves() -> None:
    """A driver to come may name a shape that cannot be taken apart."""
    odd = replace(partitions_of(H100).profiles[0], name="new-shape")
    there = GpuPartitions(
        enabled=True,
        pending=True,
        profiles=(odd,),
        instances=(GpuInstance(id=1, profile_id=19, start=0, size=1, computes=(ComputeInstance(id=0, slices=1),)),),
    )
    assert find_profile("new-shape", (odd,)) is odd
    assert list_profile_names(there) == {"new-shape": 1}
    assert is_met(request("new-shape"), there)
    assert [target.computes for target in list_targets(request("new-shape"), (odd,))] == [(1,)]


def test_places_are_assumed_only_from_what_is_known() -> None:
    """Without the size of the whole nothing can be said, and what the driver tells is never replaced."""
    blind = partitions_of(H100, enabled=False, with_placements=False)
    assert assume_places(replace(blind, memory_bytes=0)).profiles == blind.profiles
    assert assume_places(blind).profiles != blind.profiles
    told = partitions_of(H100, enabled=False)
    assert assume_places(told) == told
    on = partitions_of(H100, with_placements=False)
    assert assume_places(on) == on


def test_what_is_seen_is_held_against_what_the_driver_says() -> None:
    """Mode, mode to come, and devices by their numbers; where they lie and what else there could be does not count."""
    gpu = with_devices("1g.10gb", "3g.40gb")
    told = read_partitions(gpu)
    assert is_shown(gpu, replace(told, profiles=()))
    assert is_shown(make_gpu(0), GpuPartitions(enabled=False, pending=False))
    assert not is_shown(make_gpu(0), told)
    assert not is_shown(gpu, replace(told, pending=False))
    assert not is_shown(gpu, replace(told, instances=told.instances[:1]))
    half = GpuInstance(id=9, profile_id=9, start=0, size=4)
    assert is_shown(gpu, replace(told, instances=(*told.instances, half)))
