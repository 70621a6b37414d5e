"""The GPUs as the tree that Tencent's gpu-manager prints; pure.

Owns the text, the same line by line. The tree is of PCIe alone, as in gpu-manager: the agent's own placement counts
NVLink too, as `nodeagent fractions explain` shows.
"""

from collections.abc import Iterable, Mapping
from typing import Final, NamedTuple

from msgspec.structs import replace

from nodeagent.model.fractions import FractionOffers
from nodeagent.model.gpu import Gpu, Inventory, PathKind
from nodeagent.model.ids import GpuUuid
from nodeagent.model.journal import FractionTable
from nodeagent.model.telemetry import NodeSample
from nodeagent.rules.placement.grouping import mask_of
from nodeagent.rules.placement.hierarchy import Tree, plan_tree
from nodeagent.rules.placement.space import CORES
from nodeagent.rules.placement.topology import describe_score, plan_topology

_NAMES: Final = {PathKind.NODE.value: "CPU", PathKind.SELF.value: "PIX"}
"""Other names in gpu-manager; two GPUs of one board are named like two GPUs of one switch."""


class Leaf(NamedTuple):
    """A GPU of the tree."""

    gpu: Gpu
    pids: tuple[int, ...]
    used_bytes: int
    cores: int
    """Hundredths that can still be given."""
    memory_bytes: int
    is_free: bool
    """Whether no fraction of the GPU is given."""


class _Node(NamedTuple):
    name: str
    order: tuple[int, int, int]
    text: str
    leaves: tuple[Leaf, ...]
    below: "tuple[_Node, ...]"


def list_leaves(
    inventory: Inventory, table: FractionTable, offers: FractionOffers, sample: NodeSample | None
) -> tuple[Leaf, ...]:
    """All GPUs of the node; a GPU without fractions has nothing to allocate."""
    read = {each.uuid: each.processes for each in sample.gpus} if sample is not None else {}
    leaves = []
    for gpu in inventory.gpus:
        given = table.sum_fractions(gpu.uuid)
        is_offered = offers.unfit.get(gpu.uuid, "not in parts") == ""
        processes = read.get(gpu.uuid, ())
        leaves.append(
            Leaf(
                gpu=gpu,
                pids=tuple(process.pid for process in processes),
                used_bytes=sum(process.memory_used_bytes or 0 for process in processes),
                cores=max(0, CORES - given.cores) if is_offered else 0,
                memory_bytes=max(0, gpu.memory_total_bytes - given.memory_bytes) if is_offered else 0,
                is_free=is_offered and not (given.cores or given.memory_bytes),
            )
        )
    return tuple(leaves)


def render_graph(inventory: Inventory, leaves: Iterable[Leaf]) -> str:
    """The text of the whole tree."""
    known = {leaf.gpu.uuid: leaf for leaf in leaves}
    lines = [f"ROOT:{sum(leaf.is_free for leaf in known.values())}"]
    if inventory.gpus:
        lines += _render(_describe(_plan_pcie_tree(inventory), inventory, known), 0)
    return "".join(f"{line}\n" for line in lines)


def _plan_pcie_tree(inventory: Inventory) -> Tree:
    bare = replace(inventory, pairs=tuple(replace(pair, nvlink_count=0) for pair in inventory.pairs))
    scores = plan_topology(bare).scores
    return plan_tree(scores, mask_of(range(len(scores))))


def _describe(tree: Tree, inventory: Inventory, known: Mapping[GpuUuid, Leaf]) -> _Node:
    if not tree.branches:
        leaf = known[inventory.gpus[tree.position].uuid]
        minor = leaf.gpu.minor if leaf.gpu.minor is not None else leaf.gpu.index
        text = (
            f"(pids: {_list(leaf.pids)}, usedMemory: {leaf.used_bytes}, totalMemory: {leaf.gpu.memory_total_bytes},"
            f" allocatableCores: {leaf.cores}, allocatableMemory: {leaf.memory_bytes})"
        )
        return _Node(f"GPU{leaf.gpu.index}", (-CORES, int(leaf.is_free), minor), text, (leaf,), ())
    below = tuple(sorted((_describe(each, inventory, known) for each in tree.branches), key=lambda node: node.order))
    leaves = tuple(leaf for node in below for leaf in node.leaves)
    free = sum(leaf.is_free for leaf in leaves)
    name = describe_score(tree.score)
    text = (
        f"(aval: {free}, pids: {_list(pid for leaf in leaves for pid in leaf.pids)},"
        f" usedMemory: {sum(leaf.used_bytes for leaf in leaves)},"
        f" totalMemory: {sum(leaf.gpu.memory_total_bytes for leaf in leaves)},"
        " allocatableCores: 0, allocatableMemory: 0)"
    )
    return _Node(_NAMES.get(name, name), (-tree.score, free, min(node.order[2] for node in below)), text, leaves, below)


def _render(node: _Node, depth: int) -> list[str]:
    lines = [f"{'|   ' * depth}|---{node.name} {node.text}"]
    for each in node.below:
        lines += _render(each, depth + 1)
    return lines


def _list(pids: Iterable[int]) -> str:
    return f"[{' '.join(map(str, pids))}]"
