"""Policies of packing by name: where a pod goes, decided from what is free of each GPU of each node.

`nodeagent` is the extender itself. The others are what is published of theirs: gpu-admission takes the fullest node,
HAMi's binpack the one with the most shares, cores and memory in use, best fit the GPU of the whole cluster on which the
least stays, and fragmentation gradient descent (USENIX ATC '23) the one after which the least is free that pods to come
cannot use.
"""

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Mapping
from functools import lru_cache
from typing import Final, NamedTuple, TypeAlias

from tests.bench.packing.sizes import Sizes
from tests.support.placement import eight
from tests.support.scheduling import FakeScheduler, limit, make_pod, make_seen_node

WHOLE: Final = 100
GPUS: Final = 8
SLOTS: Final = 10
"""Shares into which HAMi cuts each GPU unless it is told otherwise."""


class Place(NamedTuple):
    """A node and the GPUs of it that a pod has."""

    node: int
    gpus: tuple[int, ...]
    size: int


class Policy(ABC):
    """A cluster of so many nodes, and the rule by which it is filled."""

    @abstractmethod
    def come(self, number: int, size: int) -> bool:
        """Give the pod its place; whether there is one."""

    @abstractmethod
    def go(self, number: int) -> None:
        """Take back what the pod had."""


class Extender(Policy):
    """The extender, asked as `predicates` asks it, with nodes of eight GPUs in pairs and quads."""

    def __init__(self, nodes: int, sizes: Sizes) -> None:
        del sizes
        self._scheduler = FakeScheduler(*(make_seen_node(f"node-{number:02}", eight()) for number in range(nodes)))

    def come(self, number: int, size: int) -> bool:
        """A part has as much of the GPU's memory as of its cores."""
        pod = make_pod(str(number), limit(size, size) if size < WHOLE else limit(size))
        return bool(self._scheduler.schedule(pod)[0])

    def go(self, number: int) -> None:
        self._scheduler.cluster.drop_pod(f"uid-of-{number}")


Free: TypeAlias = list[int]
"""Hundredths that are free of each GPU of one node."""
Key: TypeAlias = tuple[float, ...]
Rank: TypeAlias = Callable[["Counted", int, Place], Key]


class Counted(Policy):
    """Counts in hundredths, and takes the place whose key is the least."""

    def __init__(self, nodes: int, sizes: Sizes, rank: Rank) -> None:
        self.free: list[Free] = [[WHOLE] * GPUS for _ in range(nodes)]
        self.users: list[list[int]] = [[0] * GPUS for _ in range(nodes)]
        self.sizes = sizes
        self._rank = rank
        self._places: dict[int, Place] = {}

    def come(self, number: int, size: int) -> bool:
        places = [place for node in range(len(self.free)) for place in self._list_places(node, size)]
        if not places:
            return False
        self._places[number] = best = min(places, key=lambda place: (*self._rank(self, size, place), place))
        self._count(best, 1)
        return True

    def go(self, number: int) -> None:
        self._count(self._places.pop(number), -1)

    def _count(self, place: Place, sign: int) -> None:
        for gpu in place.gpus:
            self.free[place.node][gpu] -= sign * place.size
            self.users[place.node][gpu] += sign

    def _list_places(self, node: int, size: int) -> Iterator[Place]:
        """One for several whole GPUs, which are all alike; for a part each GPU on which it fits."""
        if size >= WHOLE:
            whole = [gpu for gpu, free in enumerate(self.free[node]) if free == WHOLE]
            count = size // WHOLE
            if len(whole) >= count:
                yield Place(node, tuple(whole[:count]), WHOLE)
            return
        seen = set[tuple[int, int]]()
        for gpu, free in enumerate(self.free[node]):
            alike = (free, self.users[node][gpu])
            if free >= size and alike not in seen:
                seen.add(alike)
                yield Place(node, (gpu,), size)


def take_fullest_node(cluster: Counted, size: int, place: Place) -> Key:
    del size
    free = cluster.free[place.node]
    return sum(free), place.node, free[place.gpus[0]]


def take_most_used(cluster: Counted, size: int, place: Place) -> Key:
    """The node with the most shares, cores and memory in use, and there the GPU with the most."""
    del size
    free, users = cluster.free[place.node], cluster.users[place.node]
    node = sum(users) / (GPUS * SLOTS) + 2 * (1 - sum(free) / (GPUS * WHOLE))
    gpu = users[place.gpus[0]] / SLOTS + 2 * (1 - free[place.gpus[0]] / WHOLE)
    return -node, place.node, -gpu


def take_best_fit(cluster: Counted, size: int, place: Place) -> Key:
    """The GPU on which the least stays, and of equal ones that of the fullest node."""
    del size
    free = cluster.free[place.node]
    return free[place.gpus[0]], sum(free)


def descend_gradient(cluster: Counted, size: int, place: Place) -> Key:
    """The place after which the least more is free that pods to come could not use."""
    del size
    before = cluster.free[place.node]
    after = list(before)
    for gpu in place.gpus:
        after[gpu] -= place.size
    return (measure_unusable(cluster.sizes, after) - measure_unusable(cluster.sizes, before),)


def measure_unusable(sizes: Sizes, free: Free) -> float:
    """What is free of a node and of no use to a pod that comes, on average over all that may."""
    return _measure_unusable(sizes, tuple(sorted(free)))


@lru_cache(maxsize=1 << 20)
def _measure_unusable(sizes: Sizes, free: tuple[int, ...]) -> float:
    total = sum(free)
    sums = list[int]()
    for size in sizes.counts:
        if size >= WHOLE:
            has_room = free.count(WHOLE) >= size // WHOLE
            lost = sum(each for each in free if each < WHOLE) if has_room else total
        else:
            lost = sum(each for each in free if each < size)
        sums.append(lost)
    counts = sizes.counts.values()
    return sum(lost * count for lost, count in zip(sums, counts, strict=True)) / sum(counts)


POLICIES: Final[Mapping[str, Callable[[int, Sizes], Policy]]] = {
    "nodeagent": Extender,
    "gpu-admission": lambda nodes, sizes: Counted(nodes, sizes, take_fullest_node),
    "HAMi binpack": lambda nodes, sizes: Counted(nodes, sizes, take_most_used),
    "best fit": lambda nodes, sizes: Counted(nodes, sizes, take_best_fit),
    "gradient descent": lambda nodes, sizes: Counted(nodes, sizes, descend_gradient),
}
