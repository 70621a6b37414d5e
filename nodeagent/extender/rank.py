"""Which of the nodes that have room is the best: packed or spread, and near to one another for several GPUs.

Owns the order, lowest first, which filter and prioritize share. The fewest free cores, then the fewest free blocks,
then the name is the original's order; before it comes what several whole GPUs would gain or break.
"""

from typing import Final, TypeAlias

from nodeagent.extender.account import Shape, Summary, Verdict
from nodeagent.extender.gpu_pod import Policy
from nodeagent.rules.fractions.demands import PodDemand
from nodeagent.rules.placement.space import CORES

Rank: TypeAlias = tuple[int, int, int]
BEST_SCORE: Final = 10
"""The highest that kube-scheduler takes of an extender."""
_KNOWN_MAX: Final = 65536


def find_most_whole(demand: PodDemand) -> int:
    """How many whole GPUs the container wants that wants the most."""
    return max((each.demand.gpus for each in demand.containers if each.demand.cores >= CORES), default=0)


def rank_node(summary: Summary, whole: int, policy: Policy) -> Verdict:
    """Where a node with room stands among the others; the least is the best."""
    if not whole:
        return summary.packed if policy == "pack" else summary.spread
    nearness, cores, blocks = _measure(summary, whole), summary.free_cores, summary.free_blocks
    return Verdict((nearness, cores, blocks) if policy == "pack" else (nearness, -cores, -blocks))


def _measure(summary: Summary, count: int) -> int:
    """What so many whole GPUs break or gain on this node."""
    shape, free = summary.shape, summary.free_mask
    found = shape.known.get((free, count))
    if found is None:
        found = measure_fragment(shape, free) if count == 1 else -measure_link(shape, free, count)
        if len(shape.known) >= _KNOWN_MAX:
            shape.known.clear()
        shape.known[free, count] = found
    return found


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
