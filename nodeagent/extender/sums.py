"""Whether the containers of a pod can fit a node together, by numbers, so that the hopeless is not tried.

Owns the bounds, which are never too strict: of all that runs together the sum, and of those that ask for at least so
much of a GPU how many each GPU could take. What passes them may not fit all the same.
"""

from collections.abc import Iterable
from typing import Final, NamedTuple

from nodeagent.extender.account import Summary
from nodeagent.rules.fractions.demands import PodDemand, Stage
from nodeagent.rules.placement.space import CORES

_BOUNDS_MAX: Final = 4
"""Each is held against every GPU of thousands of nodes."""


class Part(NamedTuple):
    """The cores and memory that a container takes of one GPU, as far as these are the same on each."""

    cores: int
    memory_bytes: int


class Bound(NamedTuple):
    """So many parts of at least this size."""

    least: Part
    number: int


class Sums(NamedTuple):
    """The cores and memory that containers which run together take."""

    whole: int
    cores: int
    memory_bytes: int
    bounds: tuple[Bound, ...]

    def fit(self, summary: Summary) -> bool:
        """Whether a node may have room for them."""
        if self.whole > summary.whole or self.cores > summary.free_cores:
            return False
        if self.memory_bytes > sum(free for _, free, _ in summary.rooms):
            return False
        return all(_count_room(summary, bound.least) >= bound.number for bound in self.bounds)


def _count_room(summary: Summary, least: Part) -> int:
    """How many parts of this size the GPUs could take at most."""
    cores, memory = least
    if not memory:
        return sum(free // cores for free, _, _ in summary.rooms)
    if not cores:
        return sum(room // memory for _, room, _ in summary.rooms)
    return sum(min(free // cores, room // memory) for free, room, _ in summary.rooms)


def sum_demand(demand: PodDemand) -> Sums | None:
    """What runs together; `None` where that is one container on one GPU, of which the first look says all."""
    running = [each.demand for each in demand.containers if each.stage is not Stage.INIT]
    parts = [
        Part(each.cores, 0 if each.memory_percent is not None or each.is_exclusive else each.memory_bytes)
        for each in running
        for _ in range(each.gpus)
    ]
    if len(running) < 2:
        return None
    return Sums(
        whole=sum(part.cores >= CORES for part in parts),
        cores=sum(part.cores for part in parts),
        memory_bytes=sum(part.memory_bytes for part in parts),
        bounds=_list_bounds(parts),
    )


def _list_bounds(parts: Iterable[Part]) -> tuple[Bound, ...]:
    """By each size in cores and in memory, those that take the most together."""
    parts = list(parts)
    found = set[Bound]()
    for cores in {part.cores for part in parts}:
        found.add(_bound([part for part in parts if part.cores >= cores]))
    for memory in {part.memory_bytes for part in parts}:
        found.add(_bound([part for part in parts if part.memory_bytes >= memory]))
    bounds = [bound for bound in found if any(bound.least)]
    bounds.sort(key=lambda bound: (-bound.number * bound.least.cores, -bound.number * bound.least.memory_bytes))
    return tuple(bounds[:_BOUNDS_MAX])


def _bound(parts: list[Part]) -> Bound:
    least = Part(min(part.cores for part in parts), min(part.memory_bytes for part in parts))
    return Bound(least, len(parts))
