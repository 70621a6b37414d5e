"""Which of the nodes that have room comes first."""

from collections.abc import Callable

import pytest

from nodeagent.extender.node_space import find_shape, summarise
from nodeagent.extender.rank import measure_fragment, measure_link, rank_fraction, rank_whole, score_rank
from nodeagent.model.gpu import Inventory
from nodeagent.rules.placement.hierarchy import Tree
from nodeagent.rules.placement.place import Demand, evaluate_fragment, evaluate_link
from tests.support.placement import GIB, WHOLE, account, eight, six


@pytest.mark.parametrize("make", [six, eight])
@pytest.mark.parametrize("count", [2, 3, 4])
def test_the_nearest_group_is_the_one_that_the_evaluator_takes(make: Callable[[], Inventory], count: int) -> None:
    """For every set of GPUs that can be free."""
    space = account(make())
    shape = find_shape(space.tree)
    for free in range(1 << len(space.rooms)):
        evaluation = evaluate_link(space, count, free)
        if evaluation.chosen:
            assert measure_link(shape, free, count) == -evaluation.candidates[0].keys["distance"]
        else:
            assert free.bit_count() < count


def test_the_most_broken_group_is_the_one_that_the_evaluator_enters() -> None:
    """Down to the GPU itself: beside it are as many free ones as the group counts."""
    for inventory in (six(), eight()):
        shape = find_shape(account(inventory).tree)
        for taken in range(1, 1 << len(inventory.gpus)):
            used = {index: WHOLE for index in range(len(inventory.gpus)) if taken >> index & 1}
            space = account(inventory, used)
            chosen = evaluate_fragment(space, 1, space.free).chosen
            found = measure_fragment(shape, space.free)
            assert (found == 0) == (not chosen)
            if chosen:
                groups = [group for group, _ in shape.groups if group >> chosen[0] & 1]
                assert found == (min(groups, key=int.bit_count) & space.free).bit_count()


def test_a_single_gpu_is_a_group_of_one() -> None:
    shape = find_shape(Tree(position=0))
    assert (shape.groups, measure_fragment(shape, 1), measure_fragment(shape, 0)) == ((), 1, 0)


def test_what_is_measured_is_remembered_and_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    """Once for all nodes of a kind; of large nodes not every state there can be."""
    summary = summarise(account(eight()))
    summary.shape.known.clear()
    first = rank_whole(summary, 2, "pack")
    assert rank_whole(summary, 2, "pack") == first
    assert summary.shape.known == {(0xFF, 2): -50}
    monkeypatch.setattr("nodeagent.extender.rank._KNOWN_MAX", 1)
    assert rank_whole(summary, 1, "spread").rank == (2, -800, -8 * 128)
    assert list(summary.shape.known) == [(0xFF, 1)]


def test_the_fuller_gpu_counts_before_the_fuller_node() -> None:
    """In the order in which the evaluator compares GPUs: cores, blocks, and only then what the node has left."""
    lonely = summarise(account(eight(), {0: (70, 8)}))
    busy = summarise(account(eight(), dict.fromkeys(range(8), (60, 8))))
    small = summarise(account(eight(), {0: (70, 16)}))
    assert [each.find_tightest(20, GIB) for each in (lonely, busy, small)] == [(30, 96), (40, 96), (30, 64)]
    ranked = sorted(
        (rank_fraction(each, each.find_tightest(20, GIB) or (0, 0)).rank or (), name)
        for each, name in ((lonely, "lonely"), (busy, "busy"), (small, "small"))
    )
    assert [name for _, name in ranked] == ["small", "lonely", "busy"]
    assert (lonely.find_tightest(20, 30 * GIB), lonely.find_tightest(20, 33 * GIB)) == ((100, 128), None)


def test_a_part_of_each_of_several_gpus_is_ranked_by_all_of_them() -> None:
    """By memory in percent too."""
    summary = summarise(account(eight(), {0: (70, 8), 1: (60, 30), 2: (10, 0)}))
    assert summary.measure_tightest(Demand(gpus=2, cores=20, memory_bytes=4 * GIB)) == (30 + 90, 96 + 128)
    assert summary.measure_tightest(Demand(gpus=1, cores=20, memory_percent=80)) == (90, 128)
    assert summary.measure_tightest(Demand(gpus=2, cores=0, memory_bytes=GIB)) == (30 + 40, 96 + 8)


def test_scores_fall_with_every_doubling() -> None:
    """The best of thousands has its score alone, those close behind are told apart, and none with room has nothing."""
    assert [score_rank(position) for position in (0, 1, 2, 3, 4, 7, 8, 127, 255, 256, 4999)] == [
        *(10, 9, 8, 8, 7, 7, 6, 3, 2, 1, 1)
    ]
