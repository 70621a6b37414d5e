"""Which of the nodes that have room comes first."""

from collections.abc import Callable

import pytest

from nodeagent.extender.account import find_shape, summarise
from nodeagent.extender.rank import measure_fragment, measure_link, rank_node, score_rank
from nodeagent.model.gpu import Inventory
from nodeagent.rules.placement.evaluators import evaluate_fragment, evaluate_link
from nodeagent.rules.placement.hierarchy import Tree
from tests.support.placement import WHOLE, account, eight, six


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
    """Which has none in it."""
    shape = find_shape(Tree(position=0))
    assert (shape.groups, measure_fragment(shape, 1), measure_fragment(shape, 0)) == ((), 1, 0)


def test_what_is_measured_is_remembered_and_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    """Once for all nodes of a kind; of large nodes not every state there can be."""
    summary = summarise(account(eight()))
    summary.shape.known.clear()
    first = rank_node(summary, 2, "pack")
    assert rank_node(summary, 2, "pack") == first
    assert summary.shape.known == {(0xFF, 2): -50}
    monkeypatch.setattr("nodeagent.extender.rank._KNOWN_MAX", 1)
    assert rank_node(summary, 1, "spread").rank == (2, -800, -8 * 128)
    assert list(summary.shape.known) == [(0xFF, 1)]


@pytest.mark.parametrize(("count", "scores"), [(1, [10]), (2, [10, 5]), (4, [10, 8, 5, 3])])
def test_scores_begin_at_ten(count: int, scores: list[int]) -> None:
    """And fall evenly."""
    assert [score_rank(position, count) for position in range(count)] == scores
