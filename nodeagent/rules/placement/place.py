"""The place and reason of a container's fractions: the scheduler's choice where possible, else an evaluator's.

Owns the order of the three: the scheduler's choice, GPUs near the ids chosen by the kubelet, any other with room.
A decision carries all candidates, to be explained later as it was made.
Owns also the three evaluators and the order of comparison in each. Deterministic: where all keys are equal the lowest
index decides, so that of equal GPUs only the names differ.

Link, several whole GPUs: the closest group with enough free ones, of equally close ones the fullest afterwards.
Fragment, one whole GPU: the way down the tree into the most broken group, so that intact groups are left for link; a
GPU without a group is a group of one and goes first.
Share, a fraction of a GPU: the fullest GPU with room for the fraction.
"""

from collections.abc import Collection, Iterator, Sequence
from typing import Literal, NamedTuple, TypeAlias

from nodeagent.model.ids import GpuUuid
from nodeagent.model.journal import GpuFraction
from nodeagent.model.values import Value
from nodeagent.model.wording import render_bytes
from nodeagent.rules.placement.grouping import mask_of, positions_of
from nodeagent.rules.placement.hierarchy import Tree
from nodeagent.rules.placement.space import CORES, GpuRoom, Space, find_positions
from nodeagent.rules.placement.topology import describe_score

Keys: TypeAlias = dict[str, int]
"""The compared numbers, in this order; less comes first."""


class Demand(Value, frozen=True):
    """The request of a container: the same of each of so many GPUs."""

    gpus: int = 1
    cores: int = CORES
    """Of each; 100 means all of it, its memory too."""
    memory_bytes: int = 0
    """Of each; `memory_percent` may give a percentage of the GPU's memory instead."""
    memory_percent: int | None = None

    @property
    def is_exclusive(self) -> bool:
        """Whether whole GPUs are asked for."""
        return self.cores >= CORES

    def share_of(self, room: GpuRoom) -> GpuFraction:
        """The fraction of the room's GPU."""
        if self.is_exclusive:
            return room.whole
        memory = self.memory_bytes
        if self.memory_percent is not None:
            memory = room.memory_bytes * self.memory_percent // 100
        return GpuFraction(gpu=room.gpu, cores=self.cores, memory_bytes=memory)

    def describe(self) -> str:
        """The demand in words for people."""
        if self.is_exclusive:
            return "1 whole GPU" if self.gpus == 1 else f"{self.gpus} whole GPUs"
        memory = render_bytes(self.memory_bytes) if self.memory_percent is None else f"{self.memory_percent} %"
        part = f"{self.cores} cores and {memory} of memory"
        return f"{part} of one GPU" if self.gpus == 1 else f"{part} of each of {self.gpus} GPUs"


class Candidate(Value, frozen=True):
    """A group or GPU under consideration, with the arguments for and against."""

    gpus: tuple[int, ...]
    """By index."""
    level: str
    """How near its GPUs are to one another; empty for a single one."""
    keys: Keys
    refused: str = ""
    """Why the candidate is impossible; empty when possible."""


class Evaluation(NamedTuple):
    """The result of an evaluator: positions (empty where nothing fits), and all candidates, best first."""

    chosen: tuple[int, ...]
    candidates: tuple[Candidate, ...]


class _Node(NamedTuple):
    """A node of the tree with the positions below the node and, for the order, below the parent."""

    tree: Tree
    below: int
    parent: int


def evaluate_link(space: Space, count: int, free: int) -> Evaluation:
    """Several whole GPUs out of the free GPUs, near to one another."""
    nodes = list(_walk(space.tree))
    around = [[node for node in nodes if node.below >> position & 1] for position in positions_of(free)]
    smallest = [min(groups, key=lambda node: _size(node, count, free)) for groups in around if groups]
    fitting = {node.below: node for node in smallest}.values()
    ranked = sorted(
        (_describe(space, node, count, free) for node in fitting), key=lambda each: tuple(each[0].keys.values())
    )
    possible = [node for candidate, node in ranked if not candidate.refused]
    chosen = positions_of(possible[0].below & free)[:count] if possible else ()
    return Evaluation(chosen, tuple(candidate for candidate, _ in ranked))


def _size(node: _Node, count: int, free: int) -> tuple[bool, int]:
    """Nodes with enough free GPUs first, the smallest of them; without such a node, the largest of all."""
    size, enough = node.below.bit_count(), (node.below & free).bit_count() >= count
    return not enough, size if enough else -size


def evaluate_fragment(space: Space, count: int, free: int) -> Evaluation:
    """Whole GPUs out of the free GPUs, with the least breaking of groups."""
    node = _Node(space.tree, mask_of(space.tree.leaves) if space.rooms else 0, 0)
    seen: list[Candidate] = []
    while node.tree.branches:
        ranked = sorted(
            (_describe(space, child, count, free) for child in _list_children(node)),
            key=lambda each: tuple(each[0].keys[key] for key in ("free GPUs", "free blocks", "processes", "index")),
        )
        seen.extend(candidate for candidate, _ in ranked)
        entered = [child for candidate, child in ranked if not candidate.refused]
        if not entered:
            break
        node = entered[0]
    if not seen and space.rooms:
        seen.append(_describe(space, node, count, free)[0])
    chosen = positions_of(node.below & free)[:count]
    return Evaluation(chosen if len(chosen) == count else (), tuple(seen))


def evaluate_fraction(space: Space, demand: Demand, allowed: int) -> Evaluation:
    """A fraction of one GPU, or of each of several, out of the allowed GPUs."""
    ranked = sorted(enumerate(space.rooms), key=lambda each: tuple(_key_room(each[1], space).values()))
    seen: list[Candidate] = []
    fitting: list[int] = []
    for position, room in ranked:
        away = "" if allowed >> position & 1 else room.withheld or "not among the GPUs that are preferred"
        refused = away or _refuse(room, demand)
        seen.append(Candidate(gpus=(room.index,), level="", keys=_key_room(room, space), refused=refused))
        if not refused:
            fitting.append(position)
    return Evaluation(tuple(fitting[: demand.gpus]) if len(fitting) >= demand.gpus else (), tuple(seen))


def _key_room(room: GpuRoom, space: Space) -> Keys:
    return {
        "free cores": room.free_cores,
        "free blocks": room.free_bytes // space.block_bytes,
        "processes": room.processes,
        "index": room.index,
    }


def find_obstacle(room: GpuRoom, demand: Demand) -> str:
    """Why the GPU cannot serve a demand; empty when it can."""
    if room.withheld:
        return room.withheld
    if demand.is_exclusive:
        return "" if room.is_free else "somebody has it or a part of it"
    return _refuse(room, demand)


def _refuse(room: GpuRoom, demand: Demand) -> str:
    """Why a fraction of the GPU is impossible."""
    if room.withheld:
        return room.withheld
    if room.users_max is not None and room.users >= room.users_max:
        return f"all its {room.users_max} shares are taken"
    if room.free_cores == 0 or room.free_cores < demand.cores:
        return f"{room.free_cores} cores are free, {demand.cores} are asked for"
    wanted = demand.share_of(room).memory_bytes
    if room.free_bytes < wanted:
        return f"{render_bytes(room.free_bytes)} of memory is free, {render_bytes(wanted)} is asked for"
    return ""


def _walk(tree: Tree, parent: int | None = None) -> Iterator[_Node]:
    """Every group of the tree, without single GPUs."""
    if tree.branches:
        below = mask_of(tree.leaves)
        yield _Node(tree, below, below if parent is None else parent)
        for branch in tree.branches:
            yield from _walk(branch, below)


def _list_children(node: _Node) -> Iterator[_Node]:
    for branch in node.tree.branches:
        yield _Node(branch, mask_of(branch.leaves), node.below)


def _describe(space: Space, node: _Node, count: int, free: int) -> tuple[Candidate, _Node]:
    """A group as compared: nearer before farther, fuller before emptier, and then by the parent's free GPUs."""
    open_rooms = [space.rooms[position] for position in positions_of(node.below & free)]
    rooms = [space.rooms[position] for position in positions_of(node.below)]
    indexes = [room.index for room in rooms]
    keys = {
        "distance": -node.tree.score if node.tree.branches else 0,
        "free GPUs": len(open_rooms),
        "free blocks": sum(room.free_bytes // space.block_bytes for room in open_rooms),
        "processes": sum(room.processes for room in rooms),
        "free GPUs around": (node.parent & free).bit_count(),
        "index": min(indexes),
    }
    refused = "" if len(open_rooms) >= count else f"{len(open_rooms)} of its GPUs are free, {count} are asked for"
    level = describe_score(node.tree.score) if node.tree.branches else ""
    return Candidate(gpus=tuple(indexes), level=level, keys=keys, refused=refused), node


Mode: TypeAlias = Literal["link", "fragment", "share"]

_RULES: dict[Mode, str] = {
    "link": "the nearest group with enough free GPUs, of equally near ones the one that is fullest then",
    "fragment": "a free GPU where the groups around it are broken already",
    "share": "the fullest GPU that still has room",
}


class Placement(Value, frozen=True):
    """The decision for a container."""

    demand: Demand
    mode: Mode
    shares: tuple[GpuFraction, ...]
    """In index order; empty where nothing fits."""
    rule: str
    """The reason for these GPUs, or for none."""
    candidates: tuple[Candidate, ...] = ()
    """The evaluator's candidates, in its order; empty where no evaluator was asked."""
    notes: tuple[str, ...] = ()
    """Unmet preferences, with reasons."""


def place(
    space: Space, demand: Demand, *, request: Sequence[GpuUuid] = (), near: Collection[GpuUuid] = ()
) -> Placement:
    """The GPUs for a demand.

    `request` is the scheduler's choice, taken if possible; GPUs `near` the container's processors are better than
    others, and none named means all.
    """
    mode: Mode = "share" if not demand.is_exclusive else "link" if demand.gpus > 1 else "fragment"
    notes: list[str] = []
    if request:
        obstacles = list(_list_obstacles(space, demand, request))
        if not obstacles:
            chosen = tuple(position for position, room in enumerate(space.rooms) if room.gpu in request)
            return _decide(space, demand, mode, Evaluation(chosen, ()), "the scheduler chose so", ())
        notes.append(f"the scheduler's choice cannot be: {'; '.join(obstacles)}")
    everywhere = find_positions(space, [room.gpu for room in space.rooms])
    preferred = find_positions(space, tuple(near)) or everywhere
    found = _evaluate(space, demand, mode, preferred)
    if not found.chosen and preferred != everywhere:
        notes.append("no room on the GPUs whose ids the kubelet chose")
        found = _evaluate(space, demand, mode, everywhere)
    rule = _RULES[mode] if found.chosen else _explain_none(space, demand)
    return _decide(space, demand, mode, found, rule, tuple(notes))


def _decide(
    space: Space, demand: Demand, mode: Mode, found: Evaluation, rule: str, notes: tuple[str, ...]
) -> Placement:
    shares = tuple(demand.share_of(space.rooms[position]) for position in sorted(found.chosen))
    return Placement(demand=demand, mode=mode, shares=shares, rule=rule, candidates=found.candidates, notes=notes)


def _evaluate(space: Space, demand: Demand, mode: Mode, allowed: int) -> Evaluation:
    if mode == "link":
        return evaluate_link(space, demand.gpus, space.free & allowed)
    if mode == "fragment":
        return evaluate_fragment(space, demand.gpus, space.free & allowed)
    return evaluate_fraction(space, demand, allowed)


def _list_obstacles(space: Space, demand: Demand, request: Sequence[GpuUuid]) -> Iterator[str]:
    """Why the scheduler's choice cannot be obeyed."""
    if len(set(request)) != demand.gpus:
        yield f"it names {len(set(request))} GPUs, {demand.gpus} are asked for"
    rooms = {room.gpu: room for room in space.rooms}
    for gpu in request:
        obstacle = find_obstacle(rooms[gpu], demand) if gpu in rooms else "this node does not have it"
        if obstacle:
            yield f"{f'GPU {rooms[gpu].index}' if gpu in rooms else gpu}: {obstacle}"


def _explain_none(space: Space, demand: Demand) -> str:
    """Why nothing fits: each GPU's own reason, GPUs with equal reasons together."""
    reasons: dict[str, list[int]] = {}
    for room in space.rooms:
        reasons.setdefault(find_obstacle(room, demand) or "fits, but alone is too few", []).append(room.index)
    told = "; ".join(f"GPU {', '.join(map(str, indexes))}: {reason}" for reason, indexes in reasons.items())
    return f"no room for {demand.describe()}: {told or 'this node has no GPU'}"


def render_placement(placement: Placement) -> tuple[str, ...]:
    """The decision in lines of text."""
    chosen = ", ".join(share.gpu for share in placement.shares) or "none"
    lines = [f"asked for  {placement.demand.describe()}", f"GPUs       {chosen}", f"because    {placement.rule}"]
    lines += [f"note       {note}" for note in placement.notes]
    heads = ("looked at", *[""] * len(placement.candidates))
    lines += [f"{head:<10} {_render(each)}" for head, each in zip(heads, placement.candidates, strict=False)]
    return tuple(lines)


def _render(candidate: Candidate) -> str:
    names = "GPU " + ", ".join(map(str, candidate.gpus))
    keys = ", ".join(f"{key} {value}" for key, value in candidate.keys.items() if key not in ("distance", "index"))
    level = f" ({candidate.level})" if candidate.level else ""
    refused = f": no, {candidate.refused}" if candidate.refused else ""
    return f"{names}{level}: {keys}{refused}"
