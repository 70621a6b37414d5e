"""Which of the nodes that have room is the best: packed or spread, and near to one another for several GPUs.

Owns the order, lowest first, which filter and prioritize share. Packed, a part of a GPU goes where the share evaluator
would put it if all nodes were one: on the GPU with the fewest cores and blocks left, of equal ones that of the fullest
node. Whole GPUs go where they gain the most or break the least, and then to the fullest node.
"""

from typing import Final, TypeAlias

from nodeagent.extender.account import Shape, Summary, Verdict
from nodeagent.extender.gpu_pod import Policy
from nodeagent.rules.fractions.demands import PodDemand
from nodeagent.rules.placement.evaluators import Demand
from nodeagent.rules.placement.space import CORES

Rank: TypeAlias = tuple[int, ...]
BEST_SCORE: Final = 10
"""The highest that kube-scheduler takes of an extender."""
WORST_SCORE: Final = 1
"""Of a node with room."""
_KNOWN_MAX: Final = 65536


def find_most_whole(demand: PodDemand) -> int:
    """How many whole GPUs the container wants that wants the most."""
    return max((each.demand.gpus for each in demand.containers if each.demand.cores >= CORES), default=0)


def find_largest_part(demand: PodDemand) -> Demand | None:
    """What the container asks for that asks for the largest part of a GPU; `None` where whole ones are asked for."""
    if find_most_whole(demand):
        return None
    return max((each.demand for each in demand.containers), key=lambda each: (each.cores, each.memory_bytes))


def rank_part(summary: Summary, tightest: tuple[int, int]) -> Verdict:
    """Where a node stands for a part of a GPU when nodes are packed.

    `tightest` are the free cores and blocks of the GPU that it would be a part of.
    """
    return Verdict((*tightest, summary.free_cores, summary.free_blocks))


def rank_whole(summary: Summary, whole: int, policy: Policy) -> Verdict:
    """Where a node stands for so many whole GPUs; the least is the best."""
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


def score_rank(position: int) -> int:
    """The score of the node at this position: a point less with every doubling of the nodes that are better.

    There are ten scores for thousands of nodes, and the scheduler takes one: the best has its score alone, also among
    equal ones, since that is where `filter` expects the pod.
    """
    return max(WORST_SCORE, BEST_SCORE - position.bit_length())
