"""Schedulers' choices as they write them on pods."""

from collections.abc import Mapping

import pytest

from nodeagent.model.journal import GpuFraction
from nodeagent.rules.fractions.choices import (
    Choice,
    ChosenFraction,
    ContainerChoice,
    read_chosen_node,
    read_scheduler_choice,
    render_choice,
    render_correction,
)
from nodeagent.rules.fractions.profiles import CoresProfile, CountedProfile
from tests.support.gpus import gpu_uuid, make_gpu

GPUS = [make_gpu(index) for index in range(4)]
PREDICATE = "tencent.com/predicate-gpu-idx-"
BY_UUID = "tencent.com/predicate-gpu-uuid-"
KEPT, GIVEN = CountedProfile().allocated


@pytest.mark.parametrize(
    ("annotations", "container", "expected"),
    [
        ({f"{PREDICATE}0": "2"}, 0, [2]),
        ({f"{PREDICATE}0": "2", f"{PREDICATE}1": " 3 , 1 "}, 1, [3, 1]),
        ({f"{PREDICATE}0": gpu_uuid(1)}, 0, [1]),
        ({f"{PREDICATE}0": "2"}, 1, []),
        ({f"{PREDICATE}0": "  "}, 0, []),
        ({f"{PREDICATE}-1": "2"}, -1, []),
    ],
)
def test_a_predicate_names_indexes_by_container(
    annotations: Mapping[str, str], container: int, expected: list[int]
) -> None:
    """Containers are counted without init containers, which have no choice of their own; a UUID will do as well."""
    request = read_scheduler_choice(CoresProfile(), annotations, GPUS, container=container + 1, init_containers=1)
    assert request == ContainerChoice(gpus=tuple(gpu_uuid(index) for index in expected))


@pytest.mark.parametrize(
    ("annotations", "container", "expected"),
    [
        ({KEPT: f"{gpu_uuid(1)},NVIDIA,3000,30:;"}, 0, [1]),
        ({KEPT: f";{gpu_uuid(1)},NVIDIA,3000,30:{gpu_uuid(2)},NVIDIA,3000,30:;"}, 1, [1, 2]),
        ({KEPT: f";{gpu_uuid(1)},NVIDIA,3000,30:;"}, 0, []),
        ({KEPT: f"{gpu_uuid(1)},NVIDIA,3000,30:"}, 5, []),
        ({KEPT: "", GIVEN: f"{gpu_uuid(3)},NVIDIA,3000,30:;"}, 0, [3]),
        ({}, 0, []),
    ],
)
def test_a_list_of_devices_names_uuids(annotations: Mapping[str, str], container: int, expected: list[int]) -> None:
    """Init containers are counted, and containers without a GPU have an empty place."""
    request = read_scheduler_choice(CountedProfile(), annotations, GPUS, container=container, init_containers=1)
    assert request == ContainerChoice(gpus=tuple(gpu_uuid(index) for index in expected))


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("9", "names GPU '9', which this node does not have"),
        ("1,x", "names GPU 'x', which this node does not have"),
        ("1,,2", "names GPU '', which this node does not have"),
        ("1,1", "names a GPU twice"),
        (f"1,{gpu_uuid(1)}", "names a GPU twice"),
        ("01", "names GPU '01', which this node does not have"),
        ("-1", "names GPU '-1', which this node does not have"),
        ("7" * 100000, f"names GPU '{'7' * 60}', which this node does not have"),
    ],
)
def test_a_choice_that_means_nothing_here_is_told(text: str, problem: str) -> None:
    """By the annotation's name, and without an end to the pod: another GPU may do."""
    request = read_scheduler_choice(CoresProfile(), {f"{PREDICATE}0": text}, GPUS, container=0, init_containers=0)
    assert request == ContainerChoice(problem=f"annotation {PREDICATE}0 {problem}")


def test_a_list_of_devices_of_another_node_is_told() -> None:
    """The name of the annotation in which it is comes with it."""
    request = read_scheduler_choice(
        CountedProfile(), {GIVEN: "GPU-else,NVIDIA,1,1:;"}, GPUS, container=0, init_containers=0
    )
    assert request.problem == f"annotation {GIVEN} names GPU 'GPU-else', which this node does not have"


@pytest.mark.parametrize(
    ("annotations", "container", "expected"),
    [
        ({f"{BY_UUID}0": gpu_uuid(1), f"{PREDICATE}0": "2"}, 1, ContainerChoice(gpus=(gpu_uuid(1),))),
        ({f"{BY_UUID}init-0": gpu_uuid(3), f"{BY_UUID}0": gpu_uuid(1)}, 0, ContainerChoice(gpus=(gpu_uuid(3),))),
        ({f"{BY_UUID}0": gpu_uuid(1)}, 0, ContainerChoice()),
        (
            {f"{BY_UUID}0": "GPU-else", f"{PREDICATE}0": "2"},
            1,
            ContainerChoice(problem=f"annotation {BY_UUID}0 names GPU 'GPU-else', which this node does not have"),
        ),
    ],
)
def test_uuids_outrank_indexes(annotations: Mapping[str, str], container: int, expected: ContainerChoice) -> None:
    """An index may mean another GPU after a reboot; init containers are chosen for by UUID alone."""
    assert read_scheduler_choice(CoresProfile(), annotations, GPUS, container=container, init_containers=1) == expected


def choose(*, has_uuids: bool = True) -> Choice:
    """For an init container, and the second of two containers."""

    def part(index: int) -> ChosenFraction:
        return ChosenFraction(index=index, part=GpuFraction(gpu=gpu_uuid(index), cores=30, memory_bytes=1 << 30))

    return Choice(
        node="n1",
        time_nanoseconds=1_700_000_000_123_456_789,
        parts={0: (part(3),), 2: (part(2), part(1))},
        containers=3,
        init_containers=1,
        has_uuids=has_uuids,
    )


@pytest.mark.parametrize("profile", [CoresProfile(), CountedProfile()])
def test_a_choice_that_is_written_is_read(profile: CoresProfile | CountedProfile) -> None:
    """For every container, with its node."""
    written = render_choice(profile, choose())
    read = [read_scheduler_choice(profile, written, GPUS, container=number, init_containers=1) for number in range(3)]
    assert [request.gpus for request in read] == [(gpu_uuid(3),), (), (gpu_uuid(2), gpu_uuid(1))]
    assert read_chosen_node(profile, written) == "n1"


def test_a_choice_is_written_as_the_originals_do() -> None:
    """Indexes by the number of the container; shares in one line, with an empty place for who gets none."""
    assert render_choice(CoresProfile(), choose(has_uuids=False)) == {
        "tencent.com/predicate-node": "n1",
        "tencent.com/predicate-time": "1700000000123456789",
        "tencent.com/gpu-assigned": "false",
        f"{PREDICATE}1": "2,1",
    }
    text = f"{gpu_uuid(3)},NVIDIA,1024,30:;;{gpu_uuid(2)},NVIDIA,1024,30:{gpu_uuid(1)},NVIDIA,1024,30:;"
    assert render_choice(CountedProfile(), choose()) == {
        "hami.io/vgpu-node": "n1",
        "hami.io/vgpu-time": "1700000000",
        KEPT: text,
        GIVEN: text,
    }


def test_a_pod_without_a_choice_has_no_node() -> None:
    assert [read_chosen_node(profile, {}) for profile in (CoresProfile(), CountedProfile())] == ["", ""]


@pytest.mark.parametrize(
    ("annotations", "container", "expected"),
    [
        ({KEPT: "a;b;c;"}, 1, "a;{};c;"),
        ({GIVEN: "a;b;c;"}, 2, "a;b;{};"),
        ({KEPT: "a"}, 3, "a;;;{};"),
        ({}, 1, ";{};"),
    ],
)
def test_a_list_of_devices_is_corrected_in_its_place(
    annotations: dict[str, str], container: int, expected: str
) -> None:
    """What it says of other containers stays, in both annotations that say it."""
    parts = [ChosenFraction(index=2, part=GpuFraction(gpu=gpu_uuid(2), cores=30, memory_bytes=3 << 30))]
    found = render_correction(CountedProfile(), annotations, parts, container=container, init_containers=1)
    assert found == dict.fromkeys((KEPT, GIVEN), expected.format(f"{gpu_uuid(2)},NVIDIA,3072,30:"))


@pytest.mark.parametrize(
    ("container", "keys"),
    [(1, {f"{BY_UUID}0": "uuid", f"{PREDICATE}0": "index"}), (0, {f"{BY_UUID}init-0": "uuid"})],
)
def test_a_predicate_is_corrected_for_its_container(container: int, keys: dict[str, str]) -> None:
    """And what is written is what is read."""
    parts = [
        ChosenFraction(index=index, part=GpuFraction(gpu=gpu_uuid(index), cores=100, memory_bytes=1))
        for index in (1, 3)
    ]
    found = render_correction(CoresProfile(), {}, parts, container=container, init_containers=1)
    texts = {"uuid": f"{gpu_uuid(1)},{gpu_uuid(3)}", "index": "1,3"}
    assert found == {key: texts[what] for key, what in keys.items()}
    request = read_scheduler_choice(CoresProfile(), found, GPUS, container=container, init_containers=1)
    assert request == ContainerChoice(gpus=(gpu_uuid(1), gpu_uuid(3)))
