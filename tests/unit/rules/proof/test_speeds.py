"""Slow by neighbours, slow by floors, and floors that cannot be true."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec.structs import replace

from nodeagent.model.gpu import Gpu, NvLink
from nodeagent.model.proof import ProofCheck, ProofVerdict, ProverReadings, Speed, SpeedKind
from nodeagent.rules.proof.floors import (
    FLOORS,
    Floors,
    FloorsUnreadable,
    derive_floors,
    find_floors,
    find_nominal,
    is_plausible,
    parse_floors,
)
from nodeagent.rules.proof.speeds import (
    SpeedVerdict,
    describe_slow_peers,
    find_speeds,
    is_outlier,
    judge_speeds,
    render_speed,
)
from tests.support.examples import examples
from tests.support.gpus import gpu_uuid, make_gpu

PASSED, FAILED = ProofVerdict.PASSED, ProofVerdict.FAILED
NOMINAL = {
    "NVIDIA A100-SXM4-80GB": 2039,
    "NVIDIA A100 80GB PCIe": 1935,
    "NVIDIA A30": 933,
    "NVIDIA A10G": 600,
    "NVIDIA L4": 300,
    "NVIDIA L40S": 864,
    "NVIDIA H100 80GB HBM3": 3352,
    "NVIDIA H100 NVL": 3938,
    "NVIDIA H200 NVL": 4813,
    "NVIDIA B200": 8000,
    "NVIDIA B300 SXM6 AC": 8000,
    "NVIDIA GB300": 8000,
}
"""Memory by data sheets, in GB/s."""


def gpu_of(name: str = "NVIDIA H100 80GB HBM3", generation: int = 5) -> Gpu:
    gpu = make_gpu(0, name=name)
    links = tuple(NvLink(link=at, active=at < 18, speed_mbps=26562) for at in range(20))
    return replace(gpu, pci=replace(gpu.pci, link_generation_max=generation, link_width_max=16), nvlinks=links)


def readings_of(*, nominal: float = 3352, clock_max: float = 1980, **speeds: float) -> ProverReadings:
    """By the kind's name: a speed, told three times with one bad value."""
    told = tuple(Speed(kind=SpeedKind[kind], values=(value, 0.1, value)) for kind, value in speeds.items())
    return ProverReadings(speeds=told, memory_nominal_gbps=nominal, clock_max_mhz=clock_max)


def judge(readings: ProverReadings, *others: ProverReadings, floors: Floors | None = None) -> SpeedVerdict:
    return judge_speeds(gpu_of(), readings, others, floors or Floors())


def single(verdict: SpeedVerdict) -> ProofCheck:
    (check,) = verdict.checks
    return check


def test_one_bad_value_of_three_is_no_verdict() -> None:
    assert find_speeds(readings_of(MEMORY=2500)) == {SpeedKind.MEMORY: 2500}
    assert single(judge(readings_of(MEMORY=2500), *[readings_of(MEMORY=2500)] * 2)).verdict is PASSED


def test_a_gpu_that_is_far_slower_than_its_neighbours_fails() -> None:
    """And the table says what the others have."""
    check = single(judge(readings_of(TO_GPU=24), readings_of(TO_GPU=55), readings_of(TO_GPU=54)))
    assert (check.name, check.verdict) == ("to GPU speed", FAILED)
    assert (check.measured, check.expected) == ("24 GB/s", "others 54 GB/s to 55 GB/s")
    fast = single(judge(readings_of(TO_GPU=55), readings_of(TO_GPU=24), readings_of(TO_GPU=55)))
    assert fast.verdict is PASSED


def test_of_two_gpus_that_differ_neither_fails() -> None:
    assert single(judge(readings_of(MEMORY=1000), readings_of(MEMORY=2500))).verdict is PASSED


@given(st.lists(st.floats(95, 105), min_size=3, max_size=16))
@settings(max_examples=examples(100))
def test_gpus_within_a_twentieth_are_all_alike(values: list[float]) -> None:
    """No spread of good GPUs makes an outlier."""
    assert not any(is_outlier(value, [*values[:at], *values[at + 1 :]]) for at, value in enumerate(values))


@given(st.integers(2, 15), st.floats(1, 79))
@settings(max_examples=examples(100))
def test_a_gpu_a_fifth_slower_than_all_others_is_an_outlier(others: int, value: float) -> None:
    assert is_outlier(value, [100.0] * others)


def test_a_floor_counts_without_neighbours() -> None:
    floors = Floors(memory=1905)
    slow = single(judge(readings_of(MEMORY=1800), floors=floors))
    assert (slow.verdict, slow.expected) == (FAILED, "at least 1905 GB/s")
    fine = judge(readings_of(MEMORY=2500), readings_of(MEMORY=2500), floors=floors)
    assert single(fine).verdict is PASSED
    assert single(fine).expected == "others 2500 GB/s, at least 1905 GB/s"
    assert single(judge(readings_of(MEMORY=1))).expected == "-"


@pytest.mark.parametrize("floor", [2_333_000.0, 4.9, 3200.0])
def test_a_floor_that_cannot_be_true_is_not_used(floor: float) -> None:
    """A value in another unit, or nearly the nominal speed, fails nobody, and is told."""
    verdict = judge(readings_of(MEMORY=2500), floors=Floors(memory=floor))
    assert single(verdict).verdict is PASSED
    assert "is not used: the hardware's nominal speed is 3352 GB/s" in verdict.notes[0]


def test_a_floor_without_a_nominal_speed_is_not_used() -> None:
    verdict = judge(readings_of(MEMORY=1, nominal=0), floors=Floors(memory=1905))
    assert single(verdict).verdict is PASSED
    assert verdict.notes[0].endswith("no nominal speed is known")


def test_a_low_clock_is_a_failure_beside_others_and_a_note_alone() -> None:
    """A person may have locked the clocks of a whole node."""
    low = readings_of(CLOCK=1200)
    assert single(judge(low, readings_of(CLOCK=1980), readings_of(CLOCK=1980))).verdict is FAILED
    alone = judge(low)
    assert (single(alone).name, single(alone).verdict, single(alone).measured) == ("SM clock", PASSED, "1200 MHz")
    assert "below the highest, 1980 MHz" in alone.notes[0]
    assert judge(readings_of(CLOCK=1900)).notes == ()


def copies_of(*speeds: float) -> ProverReadings:
    told = tuple(
        Speed(kind=SpeedKind.PEER, values=(speed,) * 3, peer=str(gpu_uuid(at + 1))) for at, speed in enumerate(speeds)
    )
    return ProverReadings(speeds=told)


def test_one_slow_peer_is_named_and_does_not_fail_the_gpu() -> None:
    """Most peers slow fails the GPU, by the floor."""
    floors = Floors(to_peer=335)
    names = {str(gpu_uuid(3)): "GPU 3"}
    assert single(judge(copies_of(390, 390, 30), floors=floors)).verdict is PASSED
    assert describe_slow_peers(copies_of(390, 390, 30), names) == (
        "copies to GPU 3 are slow, 30 GB/s: prove that GPU, too",
    )
    assert describe_slow_peers(copies_of(390, 380, 385), names) == ()
    assert single(judge(copies_of(30, 390, 30), floors=floors)).verdict is FAILED


def test_speeds_are_rendered_with_three_digits() -> None:
    assert [render_speed(SpeedKind.MEMORY, value) for value in (2540.4, 48.32, 0.998)] == [
        "2540 GB/s",
        "48.3 GB/s",
        "0.998 GB/s",
    ]


@pytest.mark.parametrize(("model", "nominal"), NOMINAL.items())
def test_every_floor_of_memory_is_plausible(model: str, nominal: float) -> None:
    floor = find_floors(model, [FLOORS]).memory
    assert floor is not None
    assert is_plausible(floor, nominal)


def test_every_model_of_the_table_is_known_by_a_product_name() -> None:
    """And the floors of PCIe are plausible for the generation of the model."""
    known = {*NOMINAL, "NVIDIA H200"}
    found = {name: find_floors(name, [FLOORS]) for name in known}
    assert len({id(one) for one in found.values()}) == len(FLOORS)
    for name, floors in found.items():
        for kind in (SpeedKind.TO_GPU, SpeedKind.FROM_GPU, SpeedKind.PEER):
            floor = floors.find(kind)
            generation = 4 if "A100" in name else 5
            nominal = find_nominal(kind, gpu_of(name, generation), ProverReadings())
            if kind is SpeedKind.PEER and "A100" in name:
                nominal = 12 * 25.0
            assert floor is None or is_plausible(floor, nominal), (name, kind)


def test_the_first_table_that_knows_a_model_counts() -> None:
    own = parse_floors({"NVIDIA H100*": {"memory": 2000, "to-peer": 300.5}})
    assert find_floors("NVIDIA H100 80GB HBM3", [own, FLOORS]) == Floors(memory=2000, to_peer=300.5)
    assert find_floors("NVIDIA A30", [own, FLOORS]).memory == 585
    assert find_floors("NVIDIA GT 710", [own, FLOORS]) == Floors()
    assert parse_floors(None) == {}


@pytest.mark.parametrize(
    ("document", "problem"),
    [
        ([1], "Expected `object`"),
        ({"NVIDIA A30": {"memry": 3}}, "memory, to-gpu, from-gpu, to-peer, in GB/s"),
        ({"NVIDIA A30": {"memory": "fast"}}, "Expected `float | null`"),
        ({"NVIDIA A30": {"memory": 0}}, "NVIDIA A30: memory 0 is no speed"),
    ],
)
def test_a_table_of_another_form_is_refused_with_the_key(document: object, problem: str) -> None:
    with pytest.raises(FloorsUnreadable) as caught:
        parse_floors(document)
    assert problem in str(caught.value)


def test_floors_are_three_quarters_of_what_was_measured() -> None:
    assert derive_floors({SpeedKind.MEMORY: 3200, SpeedKind.TO_GPU: 55.6, SpeedKind.CLOCK: 1980}) == Floors(
        memory=2400, to_gpu=41.7
    )


def test_nominal_speeds_come_from_the_hardware() -> None:
    """0 where the hardware tells nothing, and for clocks."""
    gpu, readings = gpu_of(), readings_of(MEMORY=1)
    assert [round(find_nominal(kind, gpu, readings)) for kind in SpeedKind] == [3352, 63, 63, 478, 0]
    assert [find_nominal(kind, make_gpu(0), ProverReadings()) for kind in SpeedKind] == [0] * 5
