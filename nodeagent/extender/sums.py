"""Whether the containers of a pod can fit a node together, by numbers, so that hopeless nodes are not tried.

Owns the bounds, never too strict: the sum of all running containers, and for containers above a size how many of them
each GPU could take. A pod within the bounds may still not fit.
"""

from collections.abc import Iterable
from typing import Final, NamedTuple

from nodeagent.extender.node_space import Summary
from nodeagent.rules.fractions.demands import PodDemand, Stage
from nodeagent.rules.placement.space import CORES

_BOUNDS_MAX: Final = 4
"""The most bounds: each is held against every GPU of thousands of nodes."""


class UniformDemand(NamedTuple):
    """The cores and memory of a container on one GPU, as far as they are the same on each."""

    cores: int
    memory_bytes: int


class Bound(NamedTuple):
    """A number of fractions of at least this size."""

    least: UniformDemand
    number: int


class Sums(NamedTuple):
    """The cores and memory of containers that run together."""

    whole: int
    cores: int
    memory_bytes: int
    bounds: tuple[Bound, ...]

    def fit(self, summary: Summary) -> bool:
        """Whether a node may have room for the containers."""
        if self.whole > summary.whole or self.cores > summary.free_cores:
            return False
        if self.memory_bytes > sum(free for _, free, _ in summary.rooms):
            return False
        return all(_count_room(summary, bound.least) >= bound.number for bound in self.bounds)


def _count_room(summary: Summary, least: UniformDemand) -> int:
    """How many fractions of this size the GPUs could take at most."""
    cores, memory = least
    if not memory:
        return sum(free // cores for free, _, _ in summary.rooms)
    if not cores:
        return sum(room // memory for _, room, _ in summary.rooms)
    return sum(min(free // cores, room // memory) for free, room, _ in summary.rooms)


def sum_demand(demand: PodDemand) -> Sums | None:
    """The running containers' sums; `None` for at most one container, exactly judged by the node's numbers."""
    running = [each.demand for each in demand.containers if each.stage is not Stage.INIT]
    fractions = [
        UniformDemand(each.cores, 0 if each.memory_percent is not None or each.is_exclusive else each.memory_bytes)
        for each in running
        for _ in range(each.gpus)
    ]
    if len(running) < 2:
        return None
    return Sums(
        whole=sum(fraction.cores >= CORES for fraction in fractions),
        cores=sum(fraction.cores for fraction in fractions),
        memory_bytes=sum(fraction.memory_bytes for fraction in fractions),
        bounds=_list_bounds(fractions),
    )


def _list_bounds(parts: Iterable[UniformDemand]) -> tuple[Bound, ...]:
    """For each size in cores and in memory, the fractions of at least the size; the largest bounds are kept."""
    parts = list(parts)
    found = set[Bound]()
    for cores in {fraction.cores for fraction in parts}:
        found.add(_bound([fraction for fraction in parts if fraction.cores >= cores]))
    for memory in {fraction.memory_bytes for fraction in parts}:
        found.add(_bound([fraction for fraction in parts if fraction.memory_bytes >= memory]))
    bounds = [bound for bound in found if any(bound.least)]
    bounds.sort(key=lambda bound: (-bound.number * bound.least.cores, -bound.number * bound.least.memory_bytes))
    return tuple(bounds[:_BOUNDS_MAX])


def _bound(parts: list[UniformDemand]) -> Bound:
    least = UniformDemand(min(fraction.cores for fraction in parts), min(fraction.memory_bytes for fraction in parts))
    return Bound(least, len(parts))
