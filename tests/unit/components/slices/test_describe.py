"""What is told of devices: NVIDIA's names, nothing that is not known."""

from collections import Counter
from collections.abc import Iterable
from itertools import combinations

import pytest
from msgspec.structs import replace

from nodeagent.components.slices.describe import (
    MIB,
    can_be_shared,
    count_gpu,
    count_need,
    describe_capacity,
    describe_shares,
)
from nodeagent.model.gpu import Gpu
from nodeagent.model.slices import Capacity, CapacityPolicy
from nodeagent.rules.claims.naming import NamedDevice, list_devices
from tests.support.gpus import gpu_uuid, make_gpu, make_inventory, make_mig_devices
from tests.support.mig import MIG_MODELS, make_mig_gpu


def whole(gpu: Gpu) -> NamedDevice:
    return NamedDevice(name="gpu-0", gpu=gpu)


def full_gpu() -> Gpu:
    return replace(make_gpu(0), memory_total_bytes=81559 * MIB)


def first_part(gpu: Gpu, *, on_demand: bool = False) -> NamedDevice:
    devices = list_devices(make_inventory([gpu]), {gpu.uuid}, on_demand=on_demand)
    return next(one for one in devices if not one.is_gpu)


def test_the_memory_of_a_gpu_is_what_nvml_tells() -> None:
    assert describe_capacity(whole(full_gpu()), on_demand=False) == {"memory": Capacity(value=81559 * MIB)}
    assert describe_capacity(whole(make_gpu(0)), on_demand=False) == {}


def test_a_mig_device_has_engines_and_slots() -> None:
    """Seven dimensions, and each slot of memory that it lies in."""
    gpu = make_mig_gpu(0, "h100-sxm5-80gb", enabled=True)
    assert gpu.mig is not None
    placed = replace(make_mig_devices(0, ["2g.20gb"])[0], placement_start=2, placement_size=2)
    made = replace(gpu, mig=replace(gpu.mig, devices=(placed,)))
    capacity = describe_capacity(first_part(made), on_demand=False)
    assert capacity["memory"] == Capacity(value=2 * 9856 * MIB)
    assert capacity["multiprocessors"] == Capacity(value=32)
    assert {"copyEngines", "decoders", "encoders", "jpegEngines", "ofaEngines"} <= capacity.keys()
    assert [name for name in capacity if name.startswith("memorySlice")] == ["memorySlice2", "memorySlice3"]


def test_on_demand_a_gpu_has_what_its_largest_part_has() -> None:
    gpu = make_mig_gpu(0, "h100-sxm5-80gb", enabled=True)
    capacity = describe_capacity(whole(gpu), on_demand=True)
    assert gpu.mig is not None
    largest = max(gpu.mig.profiles, key=lambda one: one.slice_count)
    assert capacity["memory"] == Capacity(value=largest.memory_mib * MIB)
    assert len(capacity) == 7
    part = first_part(gpu, on_demand=True)
    assert part.place is not None
    wanted = Capacity(value=part.place.profile.memory_mib * MIB)
    assert describe_capacity(part, on_demand=True)["memory"] == wanted


def test_a_shared_gpu_is_divided_by_memory_and_cores() -> None:
    """Who names nothing has all of the memory; whole mebibytes and hundredths."""
    gpu = replace(full_gpu(), memory_total_bytes=100 * MIB + 5)
    assert describe_shares(whole(gpu)) == {
        "memory": Capacity(
            value=100 * MIB, share=CapacityPolicy(default=100 * MIB, least=MIB, step=MIB, most=100 * MIB)
        ),
        "cores": Capacity(value=100, share=CapacityPolicy(default=0, least=0, step=1, most=100)),
    }


def test_a_gpu_is_shared_by_number_or_without_one() -> None:
    """Who names no memory then takes none, and one share of so many."""
    gpu = whole(replace(full_gpu(), memory_total_bytes=100 * MIB))
    unlimited, four = describe_shares(gpu, "unlimited"), describe_shares(gpu, "4")
    none = Capacity(value=100 * MIB, share=CapacityPolicy(default=0, least=0, step=MIB, most=100 * MIB))
    assert unlimited["memory"] == four["memory"] == none
    assert "shares" not in unlimited
    assert four["shares"] == Capacity(value=4, share=CapacityPolicy(default=1, least=1, step=1, most=4))


def test_only_a_gpu_with_memory_can_be_shared() -> None:
    """Nothing else is divided by the library that holds containers to their parts."""
    assert can_be_shared(whole(full_gpu()))
    assert not can_be_shared(whole(make_gpu(0)))
    assert not can_be_shared(first_part(make_gpu(0, mig=["1g.10gb"])))


def offer(model: str) -> tuple[NamedDevice, ...]:
    gpu = replace(make_mig_gpu(0, model, enabled=True), compute_capability=(9, 0))
    return list_devices(make_inventory([gpu]), {gpu_uuid(0)}, on_demand=True)


def fit(devices: Iterable[NamedDevice]) -> bool:
    """As the scheduler counts."""
    chosen = tuple(devices)
    has = count_gpu(chosen[0].gpu).counters
    taken: Counter[str] = Counter()
    for one in chosen:
        taken.update(count_need(one).counters)
    return all(value <= has[name] for name, value in taken.items())


def test_sets_and_counters_are_called_as_by_the_driver_of_nvidia() -> None:
    """People look at them with tools that they have."""
    gpu, part, *_ = offer("h100-sxm5-80gb")
    found = count_gpu(gpu.gpu)
    assert found.name == count_need(part).name == "gpu-0-counter-set"
    assert {"memory", "multiprocessors", "copy-engines", "decoders", "jpeg-engines", "ofa-engines"} <= set(
        found.counters
    )
    assert [name for name in found.counters if name.startswith("memory-slice")] == [
        f"memory-slice-{slot}" for slot in range(8)
    ]
    assert "encoders" not in found.counters


@pytest.mark.parametrize("model", MIG_MODELS)
def test_a_whole_gpu_and_a_part_of_it_exclude_one_another(model: str) -> None:
    gpu, *parts = offer(model)
    assert fit([gpu])
    for part in parts:
        assert fit([part])
        assert not fit([gpu, part])


@pytest.mark.parametrize("model", MIG_MODELS)
def test_two_parts_fit_exactly_where_their_slots_are_apart(model: str) -> None:
    """Of those of which the board has as many as that: what is counted besides can only take away."""
    for left, right in combinations(offer(model)[1:], 2):
        assert left.place is not None
        assert right.place is not None
        ends = [(one.start, one.start + one.profile.placement_size) for one in (left.place, right.place)]
        overlap = max(start for start, _ in ends) < min(end for _, end in ends)
        if overlap:
            assert not fit([left, right])
        elif left.place.profile == right.place.profile and left.place.profile.instances_max > 1:
            assert fit([left, right])


@pytest.mark.parametrize("model", MIG_MODELS)
def test_as_many_of_a_profile_fit_as_the_board_makes(model: str) -> None:
    """A board that is full of its smallest parts is full by the counters too."""
    parts = offer(model)[1:]
    profiles = {one.place.profile.name: one.place.profile for one in parts if one.place is not None}
    for name, profile in profiles.items():
        places = [one for one in parts if one.place is not None and one.place.profile.name == name]
        assert fit(places[: profile.instances_max]), name


def test_no_counter_passes_what_the_api_allows() -> None:
    """32 in a set, and names of 63 characters."""
    for model in MIG_MODELS:
        found = count_gpu(offer(model)[0].gpu)
        assert 0 < len(found.counters) <= 32
        assert all(len(name) <= 63 for name in found.counters)
