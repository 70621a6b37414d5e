"""How GPUs reach one another, from each GPU's own links. Pure; runs in the agent's process."""

from collections import Counter
from collections.abc import Mapping, Sequence
from itertools import combinations

from nodeagent.model.gpu import Gpu, GpuPair, NvSwitch, PathKind

LEVELS: dict[int, PathKind] = {
    0: PathKind.SELF,
    10: PathKind.BRIDGE,
    20: PathKind.BRIDGES,
    30: PathKind.HOST_BRIDGE,
    40: PathKind.NODE,
    50: PathKind.SYSTEM,
}
"""NVML's topology levels. Two GPUs on one board are as near as two behind one bridge."""

Levels = Mapping[frozenset[str], int | None]
"""NVML's level for each pair of PCI addresses; `None` or nothing where it could not be read."""


def list_pairs(gpus: Sequence[Gpu], levels: Levels) -> tuple[GpuPair, ...]:
    """Every pair of GPUs, the smaller index first."""
    return tuple(_describe_pair(left, right, levels) for left, right in combinations(gpus, 2))


def list_switches(gpus: Sequence[Gpu]) -> tuple[NvSwitch, ...]:
    """The NVSwitches at the far ends of the GPUs' links, each with the number of links."""
    counts = Counter(
        link.remote for gpu in gpus for link in gpu.nvlinks if link.remote_is_switch and link.remote is not None
    )
    return tuple(NvSwitch(address=address, link_count=count) for address, count in sorted(counts.items()))


def _describe_pair(left: Gpu, right: Gpu, levels: Levels) -> GpuPair:
    direct = sum(link.active and link.remote == right.pci.address for link in left.nvlinks)
    switched = min(_count_switch_links(left), _count_switch_links(right))
    return GpuPair(
        left=left.uuid,
        right=right.uuid,
        path=_decide_path(left, right, levels.get(frozenset({left.pci.address, right.pci.address}))),
        nvlink_count=direct or switched,
        through_switch=not direct and switched > 0,
    )


def _decide_path(left: Gpu, right: Gpu, level: int | None) -> PathKind:
    """Without the driver's word, the NUMA nodes bound the answer from below."""
    if level is not None and level in LEVELS:
        return PathKind.BRIDGE if level == 0 else LEVELS[level]
    same_node = left.numa_node is not None and left.numa_node == right.numa_node
    return PathKind.NODE if same_node else PathKind.SYSTEM


def _count_switch_links(gpu: Gpu) -> int:
    return sum(link.active and link.remote_is_switch for link in gpu.nvlinks)
