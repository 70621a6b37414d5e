"""Policies of packing do what their names say, and the extender what best fit says."""

from random import Random

import pytest

from tests.bench.packing.measure import fill
from tests.bench.packing.policies import POLICIES, Counted, Rank, descend_gradient, measure_unusable, take_best_fit
from tests.bench.packing.sizes import LISTS, Sizes

HALVES = Sizes({50: 1, 100: 1})


def test_the_lists_are_whole() -> None:
    """As many pods ask for GPUs as the lists have, less those that ask for none."""
    assert {name: sum(sizes.counts.values()) for name, sizes in LISTS.items()} == {
        "default": 7064,
        "multigpu50": 7973,
        "gpushare40": 7064,
        "gpushare100": 7064,
    }


def test_sizes_are_drawn_as_often_as_they_are_asked_for() -> None:
    """The same ones with the same seed."""
    chance = Random(1)
    drawn = [HALVES.draw(chance) for _ in range(1000)]
    assert drawn.count(50) == pytest.approx(500, abs=60)
    assert HALVES.mean == 75
    assert drawn == [HALVES.draw(again) for again in [Random(1)] for _ in range(1000)]


@pytest.mark.parametrize("seed", range(3))
def test_the_extender_gives_parts_as_best_fit_does(seed: int) -> None:
    """Pod for pod, so that as much is given away and as many are refused."""
    found = {name: fill(POLICIES[name], LISTS["gpushare100"], seed, 80, 2) for name in ("nodeagent", "best fit")}
    assert found["nodeagent"] == found["best fit"]
    assert found["nodeagent"].refused > 0


@pytest.mark.parametrize("name", POLICIES)
def test_a_policy_refuses_only_whom_no_gpu_has_room_for(name: str) -> None:
    """Of a node of eight GPUs nine whole ones cannot be had, nor a part beside eight; what was given comes back."""
    policy = POLICIES[name](1, HALVES)
    assert [policy.come(number, 100) for number in range(9)] == [True] * 8 + [False]
    assert not policy.come(9, 50)
    policy.go(3)
    assert [policy.come(number, 50) for number in (10, 11, 12)] == [True, True, False]
    policy.go(10)
    assert not policy.come(13, 100)
    policy.go(11)
    assert policy.come(14, 100)


def test_what_pods_to_come_cannot_use_is_counted_by_how_often_they_come() -> None:
    """Of a GPU with a half left the half, for those who want a whole one; of one with less all of it, for both."""
    assert measure_unusable(HALVES, [100, 50] + [0] * 6) == 25
    assert measure_unusable(HALVES, [100, 20] + [0] * 6) == 20
    assert measure_unusable(HALVES, [50, 20] + [0] * 6) == (20 + 70) / 2


@pytest.mark.parametrize("rank", [take_best_fit, descend_gradient])
def test_a_half_goes_beside_the_other_half(rank: Rank) -> None:
    """And breaks no whole GPU of the fuller node."""
    cluster = Counted(2, HALVES, rank)
    cluster.free = [[0] * 6 + [100, 100], [50] + [100] * 7]
    assert cluster.come(1, 50)
    assert cluster.free[1][0] == 0
