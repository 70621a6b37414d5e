"""The place and reason of a container's fractions: the scheduler's choice where possible, else an evaluator's.

Owns the order of the three: the scheduler's choice, GPUs near the ids chosen by the kubelet, any other with room.
A decision carries all candidates, to be explained later as it was made.
"""

from collections.abc import Collection, Iterator, Sequence
from typing import Literal, TypeAlias

from nodeagent.model.ids import GpuUuid
from nodeagent.model.journal import GpuPart
from nodeagent.model.values import Value
from nodeagent.rules.placement.evaluators import (
    Candidate,
    Demand,
    Evaluation,
    evaluate_fragment,
    evaluate_link,
    evaluate_share,
    find_obstacle,
)
from nodeagent.rules.placement.space import Space, find_positions

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
    shares: tuple[GpuPart, ...]
    """In index order; empty where nothing fits."""
    rule: str
    """The reason for these GPUs, or for none."""
    candidates: tuple[Candidate, ...] = ()
    """The evaluator's candidates, in its order; empty where no evaluator was asked."""
    notes: tuple[str, ...] = ()
    """Unmet preferences, with reasons."""


def place(space: Space, demand: Demand, *, wish: Sequence[GpuUuid] = (), near: Collection[GpuUuid] = ()) -> Placement:
    """The GPUs for a demand.

    Args:
        space: the account of the node.
        demand: the request.
        wish: the GPUs chosen by the scheduler; taken if possible.
        near: GPUs better than others, being near the container's processors; empty means all.
    """
    mode: Mode = "share" if not demand.is_exclusive else "link" if demand.gpus > 1 else "fragment"
    notes: list[str] = []
    if wish:
        obstacles = list(_list_obstacles(space, demand, wish))
        if not obstacles:
            chosen = tuple(position for position, room in enumerate(space.rooms) if room.gpu in wish)
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
    return evaluate_share(space, demand, allowed)


def _list_obstacles(space: Space, demand: Demand, wish: Sequence[GpuUuid]) -> Iterator[str]:
    """Why the scheduler's choice cannot be obeyed."""
    if len(set(wish)) != demand.gpus:
        yield f"it names {len(set(wish))} GPUs, {demand.gpus} are asked for"
    rooms = {room.gpu: room for room in space.rooms}
    for gpu in wish:
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
