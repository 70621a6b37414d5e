"""The whole decision: the scheduler's choice, what is near, what fits, and how it is told."""

import msgspec
import pytest
from msgspec.structs import replace

from nodeagent.model.ids import GpuUuid
from nodeagent.model.journal import GpuFraction
from nodeagent.rules.placement.place import Demand, Placement, place, render_placement
from nodeagent.rules.placement.space import Space, plan_space
from nodeagent.rules.placement.topology import describe_score
from tests.support.gpus import gpu_uuid, make_inventory
from tests.support.placement import BLOCK, GIB, WHOLE, account, eight, make_sized

HALF = Demand(cores=50, memory_bytes=8 * GIB)


def given(placement: Placement) -> list[int]:
    return [int(share.gpu[4:12], 16) for share in placement.shares]


def test_the_scheduler_s_choice_is_obeyed_where_it_can_be() -> None:
    """Also where an evaluator would have chosen otherwise."""
    space = account(eight(), {0: (50, 1)})
    placement = place(space, HALF, request=[gpu_uuid(5)])
    assert (given(placement), placement.rule, placement.candidates) == ([5], "the scheduler chose so", ())
    placement = place(space, Demand(gpus=2), request=[gpu_uuid(7), gpu_uuid(1)])
    assert given(placement) == [1, 7]
    assert placement.shares[0] == GpuFraction(gpu=gpu_uuid(1), cores=100, memory_bytes=32 * GIB)


@pytest.mark.parametrize(
    ("preferred", "demand", "note"),
    [
        ([gpu_uuid(1)], HALF, "GPU 1: 0 cores are free, 50 are asked for"),
        ([gpu_uuid(2)], HALF, "GPU 2: 4 GiB of memory is free, 8 GiB is asked for"),
        ([gpu_uuid(3)], HALF, "GPU 3: it is not well"),
        ([gpu_uuid(3)], Demand(), "GPU 3: it is not well"),
        ([gpu_uuid(2)], Demand(), "GPU 2: somebody has it or a part of it"),
        ([GpuUuid("GPU-x")], HALF, "GPU-x: this node does not have it"),
        ([gpu_uuid(0), gpu_uuid(4)], HALF, "it names 2 GPUs, 1 are asked for"),
        ([gpu_uuid(0), gpu_uuid(0)], Demand(gpus=2), "it names 1 GPUs, 2 are asked for"),
    ],
)
def test_a_choice_that_cannot_be_is_told_and_another_made(preferred: list[GpuUuid], demand: Demand, note: str) -> None:
    """A scheduler that did not know better is no reason to fail a pod."""
    space = account(eight(), {1: WHOLE, 2: (10, 28)})
    sick = replace(space.rooms[3], withheld="it is not well")
    space = replace(space, rooms=(*space.rooms[:3], sick, *space.rooms[4:]))
    placement = place(space, demand, request=preferred)
    assert placement.notes == (f"the scheduler's choice cannot be: {note}",)
    assert len(placement.shares) == demand.gpus


def test_gpus_near_the_processors_go_first() -> None:
    """Where there is no room near, anywhere is better than nowhere."""
    space = account(eight(), {4: (50, 1)})
    near = [gpu_uuid(index) for index in range(4)]
    assert given(place(space, HALF, near=near)) == [0]
    assert given(place(space, Demand(gpus=2), near=[gpu_uuid(2), gpu_uuid(3)])) == [2, 3]
    full = account(eight(), {**dict.fromkeys(range(4), WHOLE), 4: (50, 1)})
    placement = place(full, HALF, near=near)
    assert (given(placement), placement.notes) == ([4], ("no room on the GPUs whose ids the kubelet chose",))
    assert given(place(space, HALF, near=[GpuUuid("GPU-gone")])) == [4]


def test_where_nothing_fits_each_gpu_says_why() -> None:
    """Those with the same reason together, so that a node with many GPUs can be read."""
    space = account(eight(), {0: (60, 4), 1: (10, 30), **dict.fromkeys(range(2, 8), WHOLE)})
    assert place(space, HALF).rule == (
        "no room for 50 cores and 8 GiB of memory of one GPU: GPU 0: 40 cores are free, 50 are asked for;"
        " GPU 1: 2 GiB of memory is free, 8 GiB is asked for; GPU 2, 3, 4, 5, 6, 7: 0 cores are free, 50 are asked for"
    )
    two = account(make_inventory(make_sized(2)), {0: WHOLE})
    assert place(two, Demand(gpus=2)).rule == (
        "no room for 2 whole GPUs: GPU 0: somebody has it or a part of it; GPU 1: fits, but alone is too few"
    )
    assert place(account(make_inventory([])), Demand()).rule == "no room for 1 whole GPU: this node has no GPU"


def test_what_others_use_is_not_given() -> None:
    """A program that was given nothing here takes memory away, and nobody has its GPU alone."""
    space = account(make_inventory(make_sized(1)))
    space = replace(space, rooms=(replace(space.rooms[0], foreign=True, foreign_bytes=20 * GIB),))
    assert given(place(space, Demand(cores=10, memory_bytes=12 * GIB))) == [0]
    assert given(place(space, Demand(cores=10, memory_bytes=13 * GIB))) == []
    assert given(place(space, Demand())) == []


def test_a_gpu_has_so_many_shares_at_most() -> None:
    """Where the number of shares is what was promised."""
    space = plan_space(make_inventory(make_sized(1)), BLOCK, withheld={}, users_max=2)
    demand = Demand(cores=10, memory_bytes=GIB)
    for _ in range(2):
        space = space.occupy(place(space, demand).shares)
    assert place(space, demand).rule.endswith("GPU 0: all its 2 shares are taken")


def test_a_withheld_gpu_is_in_the_account_and_given_to_nobody() -> None:
    """It keeps its place in the tree, and its reason is told."""
    space = plan_space(make_inventory(make_sized(2)), BLOCK, withheld={gpu_uuid(0): "its door is whole"})
    assert given(place(space, HALF)) == [1]
    assert place(space, Demand(gpus=2)).rule.startswith("no room for 2 whole GPUs: GPU 0: its door is whole")


def test_the_account_is_exact() -> None:
    """What was never given cannot come back, what is unknown changes nothing, and too much is seen."""
    space = account(make_inventory(make_sized(1)))
    share = GpuFraction(gpu=gpu_uuid(0), cores=60, memory_bytes=GIB)
    assert space.occupy([share]).release([share]) == space
    assert space.occupy([replace(share, gpu=GpuUuid("GPU-gone"))]) == space
    with pytest.raises(ValueError, match="GPU 0 is given back more than it was given"):
        space.release([share])
    twice = space.occupy([share, share]).rooms[0]
    assert (twice.is_overcommitted, twice.free_cores, space.rooms[0].is_overcommitted) == (True, 0, False)


@pytest.mark.parametrize(
    ("demand", "expected"),
    [
        (Demand(), "1 whole GPU"),
        (Demand(gpus=3), "3 whole GPUs"),
        (HALF, "50 cores and 8 GiB of memory of one GPU"),
        (Demand(gpus=2, cores=0, memory_percent=25), "0 cores and 25 % of memory of each of 2 GPUs"),
    ],
)
def test_a_demand_is_told_as_people_say_it(demand: Demand, expected: str) -> None:
    """In a sentence that can follow `no room for`."""
    assert demand.describe() == expected


@pytest.mark.parametrize(
    ("score", "expected"), [(50, "PIX"), (1820, "NVLink x18, NODE"), (10, "SYS"), (7, "7"), (60, "X")]
)
def test_a_score_is_told_in_words(score: int, expected: str) -> None:
    """Links and path, as people know them from the driver's matrix."""
    assert describe_score(score) == expected


def lines_of(space: Space, demand: Demand, *request: GpuUuid) -> list[str]:
    return list(render_placement(place(space, demand, request=request)))


def test_the_decision_reads_well_and_is_json() -> None:
    """What was asked, chosen and looked at, line by line; the same for machines."""
    space = account(make_inventory(make_sized(2)), {1: (80, 4)})
    assert lines_of(space, HALF, gpu_uuid(1)) == [
        "asked for  50 cores and 8 GiB of memory of one GPU",
        f"GPUs       {gpu_uuid(0)}",
        "because    the fullest GPU that still has room",
        "note       the scheduler's choice cannot be: GPU 1: 20 cores are free, 50 are asked for",
        "looked at  GPU 1: free cores 20, free blocks 112, processes 0: no, 20 cores are free, 50 are asked for",
        "           GPU 0: free cores 100, free blocks 128, processes 0",
    ]
    assert lines_of(space, Demand(gpus=2))[1] == "GPUs       none"
    assert lines_of(space, Demand(gpus=2))[2].startswith("because    no room for 2 whole GPUs: GPU 0")
    assert lines_of(account(eight()), Demand(gpus=8))[3] == (
        "looked at  GPU 0, 1, 2, 3, 4, 5, 6, 7 (SYS): free GPUs 8, free blocks 1024, processes 0, free GPUs around 8"
    )
    placement = place(space, HALF)
    assert msgspec.json.decode(msgspec.json.encode(placement), type=Placement) == placement
