"""The ids by which the kubelet counts: how many, which go together, where they belong."""

from collections.abc import Iterable

import pytest
from msgspec.structs import replace

from nodeagent.model.gpu import Gpu
from nodeagent.model.ids import DeviceId
from nodeagent.rules.fractions import device_ids
from nodeagent.rules.fractions.device_ids import (
    DeviceIdGroup,
    FractionId,
    FractionIdKind,
    find_home,
    find_near,
    name_group,
    parse_fraction_id,
    plan_device_ids,
    prefer_device_ids,
    render_fraction_id,
)
from nodeagent.rules.fractions.profiles import CoresProfile, CountedProfile
from tests.support.gpus import gpu_uuid, make_gpu

MIB = 1 << 20


def gpu(index: int, mebibytes: int = 15300, numa_node: int | None = 0) -> Gpu:
    return replace(make_gpu(index, numa_node=numa_node), memory_total_bytes=mebibytes * MIB)


def count(groups: Iterable[DeviceIdGroup]) -> dict[str, int]:
    counts: dict[str, int] = {}
    for group in groups:
        assert len(list(group.list_ids())) == group.count
        counts[group.resource] = counts.get(group.resource, 0) + group.count
    return counts


def test_memory_is_rounded_down_for_each_gpu() -> None:
    """Four GPUs of 59.77 blocks each have 236, not the 239 of their sum: three of those nobody could serve."""
    assert count(plan_device_ids([gpu(index) for index in range(4)], CoresProfile())) == {
        "tencent.com/vcuda-core": 400,
        "tencent.com/vcuda-memory": 236,
    }


def test_capacity_follows_block_names_and_ratio() -> None:
    """A larger block, other names, and more memory than there is where somebody wants that."""
    profile = CoresProfile(block_bytes=1024 * MIB)
    assert count(plan_device_ids([gpu(0)], profile))["tencent.com/vcuda-memory"] == 14
    assert count(plan_device_ids([gpu(0)], profile, 1.5))["tencent.com/vcuda-memory"] == 22
    assert count(plan_device_ids([gpu(0, 0)], profile)) == {
        "tencent.com/vcuda-core": 100,
        "tencent.com/vcuda-memory": 0,
    }
    assert count(plan_device_ids([gpu(0), gpu(1)], CountedProfile(shares_per_gpu=4))) == {"nvidia.com/gpu": 8}


def test_ids_carry_numa_node_and_group_and_stay() -> None:
    """The same GPU has the same ids whatever is beside it and however they are ordered."""
    alone = {each for group in plan_device_ids([gpu(1, numa_node=1)], CoresProfile()) for each in group.list_ids()}
    groups = plan_device_ids([gpu(1, numa_node=1), gpu(0, numa_node=None)], CoresProfile())
    ids = [each for group in groups for each in group.list_ids()]
    assert len(set(ids)) == len(ids)
    assert alone < set(ids)
    assert {unit.numa_node for unit in map(parse_fraction_id, ids) if unit} == {1, None}


def test_gpus_whose_groups_have_the_same_name_share_it(monkeypatch: pytest.MonkeyPatch) -> None:
    """The name is short, so two may have the same one day: their numbers go on where the other's end."""
    monkeypatch.setattr(device_ids, "name_group", lambda uuid: "00000000")
    groups = plan_device_ids([gpu(0), gpu(1)], CoresProfile())
    ids = [each for group in groups for each in group.list_ids()]
    assert len(set(ids)) == len(ids) == 318
    cores = [group for group in groups if group.kind is FractionIdKind.CORE]
    assert find_home([render_fraction_id(FractionId(FractionIdKind.CORE, 0, "00000000", 150))], cores) == (gpu_uuid(1),)


def test_ids_say_which_gpus_they_stand_for() -> None:
    """Those of most of them first; ids of nobody's stand for none."""
    groups = plan_device_ids([gpu(0), gpu(1)], CoresProfile())
    by_gpu = {group.gpu: list(group.list_ids()) for group in groups if group.kind is FractionIdKind.CORE}
    ids = [*by_gpu[gpu_uuid(0)][:2], *by_gpu[gpu_uuid(1)][:5]]
    beyond = render_fraction_id(FractionId(FractionIdKind.CORE, 0, groups[0].name, 100))
    assert find_home([*ids, DeviceId("GPU-x"), beyond], groups) == (gpu_uuid(1), gpu_uuid(0))
    assert find_home([DeviceId("GPU-x"), beyond], groups) == ()


def test_ids_say_which_gpus_are_near() -> None:
    """Those at the same NUMA nodes; unknown nodes are near to nothing."""
    gpus = [gpu(0), gpu(1, numa_node=1), gpu(2, numa_node=None)]
    assert find_near([core(1, "a", 0), DeviceId("x")], gpus) == {gpu_uuid(1)}
    assert find_near([core(None, "a", 0)], gpus) == frozenset()


def core(node: int | None, group: str, number: int) -> DeviceId:
    return render_fraction_id(FractionId(FractionIdKind.CORE, node, group * 8, number))


def cores(node: int | None, group: str, *numbers: int) -> list[DeviceId]:
    return [core(node, group, number) for number in numbers]


def full(node: int | None, group: str, size: int = 100) -> list[DeviceId]:
    return cores(node, group, *range(size))


def spread(ids: Iterable[DeviceId]) -> dict[str, int]:
    """How many of each node and group."""
    found: dict[str, int] = {}
    for unit in map(parse_fraction_id, ids):
        assert unit is not None
        found[f"{unit.numa_node}{unit.group[0]}"] = found.get(f"{unit.numa_node}{unit.group[0]}", 0) + 1
    return found


@pytest.mark.parametrize(
    ("available", "size", "expected"),
    [
        ([*full(0, "a"), *full(0, "b", 40)], 30, {"0b": 30}),
        ([*full(0, "a"), *full(0, "b", 40)], 50, {"0a": 50}),
        ([*full(0, "a", 50), *full(0, "b", 60), *full(1, "c"), *full(1, "d")], 100, {"1c": 100}),
        ([*full(0, "a"), *full(0, "b"), *full(1, "c"), *full(1, "d", 90)], 200, {"0a": 100, "0b": 100}),
        ([*full(0, "a"), *full(0, "b"), *full(0, "c", 90), *full(1, "d"), *full(1, "e")], 200, {"1d": 100, "1e": 100}),
        ([*full(0, "a"), *full(1, "b"), *full(1, "c")], 300, {"0a": 100, "1b": 100, "1c": 100}),
        ([*full(0, "a", 20), *full(0, "b", 30), *full(0, "c", 10)], 45, {"0b": 30, "0a": 15}),
        ([*full(None, "a"), *full(0, "b", 20)], 10, {"0b": 10}),
        (full(0, "a", 5), 0, {}),
    ],
)
def test_ids_stay_together(available: list[DeviceId], size: int, expected: dict[str, int]) -> None:
    """Within one group if that can be, else within one NUMA node, in as few groups as it takes."""
    chosen = prefer_device_ids(reversed(available), (), size)
    assert len(set(chosen)) == size
    assert spread(chosen) == expected


def test_the_lowest_numbers_go_first() -> None:
    """As people count, so that ids are given out and come back in an order that can be read."""
    assert prefer_device_ids(cores(0, "a", 11, 9, 10, 100), (), 2) == (*cores(0, "a", 9, 10),)


def test_what_must_be_included_draws_the_others_near() -> None:
    """A container that takes over the ids of an init container stays where those are."""
    available = [*full(0, "a"), *full(0, "b"), *full(1, "c", 20), *full(1, "d", 40)]
    required = cores(1, "c", 3, 4)
    chosen = prefer_device_ids(available, required, 30)
    assert chosen[:2] == tuple(required)
    assert spread(chosen) == {"1c": 20, "1d": 10}
    assert spread(prefer_device_ids(available, required, 100)) == {"1c": 20, "1d": 40, "0a": 40}


@pytest.mark.parametrize(
    ("available", "required", "size"),
    [
        (full(0, "a", 3), (), 4),
        (full(0, "a", 3), cores(0, "a", 0, 1), 1),
        (full(0, "a", 3), cores(0, "b", 0), 1),
        (full(0, "a", 3), (), -1),
    ],
)
def test_a_request_that_contradicts_itself_is_left_to_the_kubelet(
    available: list[DeviceId], required: tuple[DeviceId, ...], size: int
) -> None:
    """There is no right answer, and an error would fail a pod."""
    assert prefer_device_ids(available, required, size) == ()


def test_ids_that_are_no_device_ids_are_answered_too() -> None:
    """They belong together, and nowhere."""
    odd = [DeviceId("y"), DeviceId("x")]
    assert prefer_device_ids(odd, (), 1) == ("x",)
    assert set(prefer_device_ids([*odd, core(0, "a", 0)], (), 3)) == {"x", "y", core(0, "a", 0)}


@pytest.mark.parametrize(
    ("unit", "text"),
    [
        (FractionId(FractionIdKind.CORE, 0, "1a2b3c4d", 17), "core-n0-g1a2b3c4d-17"),
        (FractionId(FractionIdKind.MEMORY, None, "00000000", 0), "mem-nx-g00000000-0"),
        (FractionId(FractionIdKind.SHARE, 999999, "ffffffff", 999999), "gpu-n999999-gffffffff-999999"),
    ],
)
def test_a_device_id_round_trips(unit: FractionId, text: str) -> None:
    """A device id carries what it counts, NUMA node and group; an unknown node is spelled."""
    assert render_fraction_id(unit) == text
    assert parse_fraction_id(text) == unit


@pytest.mark.parametrize(
    "text",
    [
        "",
        "core",
        "core-n0-g1a2b3c4d-",
        "core-n0-g1a2b3c4d--1",
        "core-n0-g1a2b3c4d-01",
        "core-n00-g1a2b3c4d-1",
        "core-n-g1a2b3c4d-1",
        "core-n-1-g1a2b3c4d-1",
        "core-n0-g1A2B3C4D-1",
        "core-n0-g1a2b3c4-1",
        "core-n0-g1a2b3c4d-1000000",
        "core-n0-g1a2b3c4d-1\n",
        " core-n0-g1a2b3c4d-1",
        "core-n0-g1a2b3c4d-\u0661",
        "core-n0-g1a2b3c4d-" + "9" * 5000,
        "tencent.com/vcuda-core-17",
        gpu_uuid(0),
    ],
)
def test_what_is_no_device_id_is_refused(text: str) -> None:
    """Each device id has one spelling; another program's ids, and anything hostile, are none."""
    assert parse_fraction_id(text) is None


def test_groups_are_named_by_what_outlives_a_reboot() -> None:
    """By the GPU itself, in eight digits; similar UUIDs have other names."""
    assert name_group(gpu_uuid(0)) == name_group(gpu_uuid(0))
    assert len({name_group(gpu_uuid(index)) for index in range(64)}) == 64
    assert parse_fraction_id(render_fraction_id(FractionId(FractionIdKind.CORE, 0, name_group("x"), 1))) is not None
