"""Wishes and bans by model and UUID."""

from collections.abc import Mapping

import pytest

from nodeagent.rules.fractions.selection import (
    UNWANTED_GPUS,
    UNWANTED_MODELS,
    WANTED_GPUS,
    WANTED_MODELS,
    Selection,
    narrow,
    read_selection,
)
from nodeagent.rules.placement.place import Demand, place
from tests.support.gpus import gpu_uuid, make_inventory
from tests.support.placement import account, make_sized

MODELS = {gpu_uuid(0): "NVIDIA H100 80GB HBM3", gpu_uuid(1): "NVIDIA A100-SXM4-80GB", gpu_uuid(2): "Tesla T4"}


@pytest.mark.parametrize(
    ("annotations", "open_to_it"),
    [
        ({}, [0, 1, 2]),
        ({WANTED_MODELS: "h100"}, [0]),
        ({WANTED_MODELS: "H100, T4 ,"}, [0, 2]),
        ({WANTED_MODELS: "NVIDIA", UNWANTED_MODELS: "H100"}, [1]),
        ({UNWANTED_MODELS: "80gb"}, [2]),
        ({WANTED_GPUS: gpu_uuid(1)}, [1]),
        ({UNWANTED_GPUS: f"{gpu_uuid(1)},{gpu_uuid(2)}"}, [0]),
        ({WANTED_GPUS: gpu_uuid(1), UNWANTED_GPUS: gpu_uuid(1)}, []),
        ({WANTED_MODELS: "B200"}, []),
    ],
)
def test_a_gpu_is_had_where_nothing_speaks_against_it(annotations: Mapping[str, str], open_to_it: list[int]) -> None:
    """All that the pod says counts at once."""
    space = narrow(account(make_inventory(make_sized(3))), MODELS, read_selection(annotations))
    assert [room.index for room in space.rooms if not room.withheld] == open_to_it


def test_nothing_said_changes_nothing() -> None:
    """The same value, so that it costs nothing."""
    space = account(make_inventory(make_sized(3)))
    assert narrow(space, MODELS, read_selection({WANTED_MODELS: " , "})) is space


def test_what_is_withheld_keeps_its_own_reason() -> None:
    """That a GPU is lost says more than that the pod would not want it."""
    inventory = make_inventory(make_sized(3))
    lost = narrow(account(inventory), MODELS, Selection(not_gpus=(gpu_uuid(0),)))
    assert narrow(lost, MODELS, Selection(gpus=(gpu_uuid(1),))).rooms[0] == lost.rooms[0]


def test_the_evaluators_keep_to_it_and_say_why() -> None:
    """Whole GPUs and parts alike."""
    space = narrow(account(make_inventory(make_sized(3))), MODELS, read_selection({WANTED_MODELS: "T4"}))
    assert [part.gpu for part in place(space, Demand(cores=10, memory_bytes=1)).shares] == [gpu_uuid(2)]
    assert [part.gpu for part in place(space, Demand()).shares] == [gpu_uuid(2)]
    assert "the pod wants another model (nvidia.com/use-gputype)" in place(space, Demand(gpus=2)).rule
