"""The order of nodes with room: packed or spread, and near GPUs first for several GPUs.

Owns the order, lowest first, shared by filter and prioritize. Packed, a fraction goes where the share evaluator would
put it if all nodes were one: on the GPU with the fewest cores and blocks left, among equal GPUs on the fullest node.
Whole GPUs go where they gain the most or break the least, and then to the fullest node.
"""

from typing import Final, TypeAlias

from nodeagent.extender.gpu_pod import Policy
from nodeagent.extender.node_space import Shape, Summary, Verdict
from nodeagent.rules.fractions.demands import PodDemand
from nodeagent.rules.placement.place import Demand
from nodeagent.rules.placement.space import CORES

Rank: TypeAlias = tuple[int, ...]
BEST_SCORE: Final = 10
"""The highest score that kube-scheduler takes from an extender."""
WORST_SCORE: Final = 1
"""The lowest score of a node with room."""
_KNOWN_MAX: Final = 65536


def find_most_whole(demand: PodDemand) -> int:
    """The largest number of whole GPUs that a container asks for."""
    return max((each.demand.gpus for each in demand.containers if each.demand.cores >= CORES), default=0)


def find_largest_fraction(demand: PodDemand) -> Demand | None:
    """The demand of the container with the largest fraction; `None` where a container asks for whole GPUs."""
    if find_most_whole(demand):
        return None
    return max((each.demand for each in demand.containers), key=lambda each: (each.cores, each.memory_bytes))


def rank_fraction(summary: Summary, tightest: tuple[int, int]) -> Verdict:
    """A node's rank for a fraction when nodes are packed.

    `tightest` are the free cores and blocks of the GPU for the fraction.
    """
    return Verdict((*tightest, summary.free_cores, summary.free_blocks))


def rank_whole(summary: Summary, whole: int, policy: Policy) -> Verdict:
    """A node's rank for a number of whole GPUs, lowest first."""
    nearness, cores, blocks = _measure(summary, whole), summary.free_cores, summary.free_blocks
    return Verdict((nearness, cores, blocks) if policy == "pack" else (nearness, -cores, -blocks))


def _measure(summary: Summary, count: int) -> int:
    """The link gained or the group broken by taking the whole GPUs on this node."""
    shape, free = summary.shape, summary.free_mask
    found = shape.known.get((free, count))
    if found is None:
        found = measure_fragment(shape, free) if count == 1 else -measure_link(shape, free, count)
        if len(shape.known) >= _KNOWN_MAX:
            shape.known.clear()
        shape.known[free, count] = found
    return found


def measure_link(shape: Shape, free: int, count: int) -> int:
    """How near the GPUs of the nearest group with enough free GPUs are; 0 without such a group."""
    return max((score for group, score in shape.groups if (group & free).bit_count() >= count), default=0)


def measure_fragment(shape: Shape, free: int) -> int:
    """How many GPUs are free in the evaluator's group: the fewer, the less is broken by taking one."""
    node, available = shape.root, (shape.root.below & free).bit_count()
    while available and node.branches:
        available = (node.below & free).bit_count()
        node = min((count, branch) for branch in node.branches if (count := (branch.below & free).bit_count()))[1]
    return available


def score_rank(position: int) -> int:
    """The score of the node at a position: a point less with every doubling of the better nodes.

    There are ten scores for thousands of nodes, and the scheduler takes one node: the best has its score alone, also
    among equal nodes, since `filter` expects the pod there.
    """
    return max(WORST_SCORE, BEST_SCORE - position.bit_length())
