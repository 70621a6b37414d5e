"""Counters: whatever they allow together can be made together, and what can be made they allow."""

from collections import Counter
from collections.abc import Iterable
from itertools import combinations

import pytest
from msgspec.structs import replace

from nodeagent.components.slices.describe import count_gpu, count_need
from nodeagent.rules.claims.naming import NamedDevice, list_devices
from tests.support.gpus import gpu_uuid, make_inventory
from tests.support.mig import MIG_MODELS, make_mig_gpu


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
    """One GPU is given once."""
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
