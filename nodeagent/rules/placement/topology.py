"""How well GPUs work together, as numbers: read once from the inventory, so that no request ever asks the driver.

Owns the weights of paths and links.

Refuses to fail: a pair missing in the inventory is scored by NUMA nodes, the weakest known link.
"""

from collections.abc import Mapping

from nodeagent.model.gpu import Gpu, GpuPair, Inventory, PathKind
from nodeagent.model.ids import GpuUuid
from nodeagent.model.values import Value

_PATH_SCORE: Mapping[PathKind, int] = {
    PathKind.SELF: 60,  # two GPUs of one board
    PathKind.BRIDGE: 50,
    PathKind.BRIDGES: 40,
    PathKind.HOST_BRIDGE: 30,
    PathKind.NODE: 20,
    PathKind.SYSTEM: 10,
}
_SCORE_PER_NVLINK = 100
_NVLINKS_COUNTED = 18


class Topology(Value, frozen=True):
    """The score of every pair, by position; positions follow the inventory's order."""

    gpus: tuple[GpuUuid, ...]
    scores: tuple[tuple[int, ...], ...]


def plan_topology(inventory: Inventory) -> Topology:
    """Score every pair of GPUs, links through an NVSwitch included.

    Upstream counts a link into a switch as nothing, which leaves boards with NVSwitch without any link score.
    Here both ends of a pair reach each other with as many links as the inventory says, switch or not.
    """
    pairs = {frozenset((pair.left, pair.right)): pair for pair in inventory.pairs}
    return Topology(
        gpus=tuple(gpu.uuid for gpu in inventory.gpus),
        scores=tuple(
            tuple(
                0 if left is right else _score_pair(left, right, pairs.get(frozenset((left.uuid, right.uuid))))
                for right in inventory.gpus
            )
            for left in inventory.gpus
        ),
    )


def describe_score(score: int) -> str:
    """A pair's score in words: `NVLink x18, NODE`, or `PIX` where there are no links."""
    links, path = divmod(score, _SCORE_PER_NVLINK)
    name = next((kind.value for kind, worth in _PATH_SCORE.items() if worth == path), str(path))
    return f"NVLink x{links}, {name}" if links else name


def _score_pair(left: Gpu, right: Gpu, pair: GpuPair | None) -> int:
    if pair is None:
        near = left.numa_node is not None and left.numa_node == right.numa_node
        return _PATH_SCORE[PathKind.NODE if near else PathKind.SYSTEM]
    return _PATH_SCORE[pair.path] + _SCORE_PER_NVLINK * min(max(pair.nvlink_count, 0), _NVLINKS_COUNTED)
