"""Which of the nodes that have room is the best: packed or spread, and near to one another for several GPUs.

Owns the order, lowest first, which filter and prioritize share. The fewest free cores, then the fewest free blocks,
then the name is the original's order; before it comes what several whole GPUs would gain or break.
"""

from typing import Final, TypeAlias

from nodeagent.extender.account import Shape, Summary
from nodeagent.extender.gpu_pod import Policy
from nodeagent.rules.fractions.demands import PodDemand
from nodeagent.rules.placement.space import CORES

Rank: TypeAlias = tuple[int, int, int]
BEST_SCORE: Final = 10
"""The highest that kube-scheduler takes of an extender."""


def rank_node(summary: Summary, demand: PodDemand, policy: Policy) -> Rank:
    """Where a node with room stands among the others; the least is the best."""
    whole = [each.demand.gpus for each in demand.containers if each.demand.cores >= CORES]
    sign = 1 if policy == "pack" else -1
    return _measure(summary, max(whole, default=0)), sign * summary.free_cores, sign * summary.free_blocks


def _measure(summary: Summary, count: int) -> int:
    """What so many whole GPUs break or gain on this node."""
    if count == 0:
        return 0
    if count == 1:
        return measure_fragment(summary.shape, summary.free_mask)
    return -measure_link(summary.shape, summary.free_mask, count)


def measure_link(shape: Shape, free: int, count: int) -> int:
    """How near the GPUs of the nearest group with so many free ones are; 0 where there is none."""
    return max((score for group, score in shape.groups if (group & free).bit_count() >= count), default=0)


def measure_fragment(shape: Shape, free: int) -> int:
    """How many GPUs are free in the group to which the evaluator goes: the fewer, the less is broken by taking one."""
    node, available = shape.root, (shape.root.below & free).bit_count()
    while available and node.branches:
        available = (node.below & free).bit_count()
        node = min((count, branch) for branch in node.branches if (count := (branch.below & free).bit_count()))[1]
    return available


def score_rank(position: int, count: int) -> int:
    """The score of the node at this position among so many."""
    return BEST_SCORE - BEST_SCORE * position // count
