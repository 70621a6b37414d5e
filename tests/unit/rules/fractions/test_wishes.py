"""Schedulers' choices as they write them on pods."""

from collections.abc import Mapping

import pytest

from nodeagent.rules.fractions.profiles import CoresProfile, SharesProfile
from nodeagent.rules.fractions.wishes import Wish, read_wish
from tests.support.gpus import gpu_uuid, make_gpu

GPUS = [make_gpu(index) for index in range(4)]
PREDICATE = "tencent.com/predicate-gpu-idx-"
KEPT, GIVEN = SharesProfile().allocated


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
    wish = read_wish(CoresProfile(), annotations, GPUS, container=container + 1, init_containers=1)
    assert wish == Wish(gpus=tuple(gpu_uuid(index) for index in expected))


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
    wish = read_wish(SharesProfile(), annotations, GPUS, container=container, init_containers=1)
    assert wish == Wish(gpus=tuple(gpu_uuid(index) for index in expected))


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
    wish = read_wish(CoresProfile(), {f"{PREDICATE}0": text}, GPUS, container=0, init_containers=0)
    assert wish == Wish(problem=f"annotation {PREDICATE}0 {problem}")


def test_a_list_of_devices_of_another_node_is_told() -> None:
    """The name of the annotation in which it is comes with it."""
    wish = read_wish(SharesProfile(), {GIVEN: "GPU-else,NVIDIA,1,1:;"}, GPUS, container=0, init_containers=0)
    assert wish.problem == f"annotation {GIVEN} names GPU 'GPU-else', which this node does not have"
