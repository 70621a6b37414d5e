"""The device ids for the kubelet to count fractions by: their number, groups and NUMA nodes.

Owns capacity, counted and rounded down for each GPU by itself, so that every promise can be kept by one GPU.
An id steers and binds nothing: the GPU is chosen when the container starts.

A device id counts, and names a NUMA node and a group of GPUs for the kubelet to hold on to: `core-n0-g1a2b3c4d-17`.
Groups have names that outlive a reboot, and short ones: the kubelet writes down all ids each time that it allocates.
"""

import re
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Sequence
from enum import StrEnum
from functools import lru_cache
from hashlib import sha256
from typing import Final, NamedTuple

from nodeagent.model.gpu import Gpu
from nodeagent.model.ids import DeviceId, GpuUuid, ResourceName
from nodeagent.model.values import Value
from nodeagent.rules.fractions.profiles import CoresProfile, Profile
from nodeagent.rules.placement.space import CORES

_NOWHERE: Final = -1
"""The place of ids without a known NUMA node."""
_NUMBER: Final = "0|[1-9][0-9]{0,5}"
_DEVICE_ID: Final = re.compile(rf"(core|mem|gpu)-n(x|{_NUMBER})-g([0-9a-f]{{8}})-({_NUMBER})")


class FractionIdKind(StrEnum):
    """The unit of a device id."""

    CORE = "core"
    MEMORY = "mem"
    SHARE = "gpu"


class FractionId(NamedTuple):
    """A unit of a fraction."""

    kind: FractionIdKind
    numa_node: int | None
    group: str
    """The group's name, by `name_group`."""
    number: int


def name_group(uuid: str) -> str:
    """The name of a GPU's group in device ids."""
    return sha256(uuid.encode()).hexdigest()[:8]


def render_fraction_id(unit: FractionId) -> DeviceId:
    """The unit as a device id."""
    node = "x" if unit.numa_node is None else unit.numa_node
    return DeviceId(f"{unit.kind}-n{node}-g{unit.group}-{unit.number}")


@lru_cache(maxsize=1 << 15)
def parse_fraction_id(device_id: str) -> FractionId | None:
    """The inverse of `render_fraction_id`; `None` for any other text.

    Remembered, because the kubelet names all free ids whenever a pod comes, thousands on a large node.
    """
    found = _DEVICE_ID.fullmatch(device_id)
    if found is None:
        return None
    kind, node, group, number = found.groups()
    return FractionId(FractionIdKind(kind), None if node == "x" else int(node), group, int(number))


class DeviceIdGroup(Value, frozen=True):
    """The ids of one resource for one GPU: as healthy as the GPU."""

    resource: ResourceName
    kind: FractionIdKind
    gpu: GpuUuid
    numa_node: int | None
    name: str
    count: int
    first: int = 0
    """More than 0 only where two GPUs have the same name of a group."""

    def list_ids(self) -> Iterator[DeviceId]:
        """In numeric order."""
        for number in range(self.first, self.first + self.count):
            yield render_fraction_id(FractionId(self.kind, self.numa_node, self.name, number))


def plan_device_ids(gpus: Iterable[Gpu], profile: Profile, memory_ratio: float = 1.0) -> tuple[DeviceIdGroup, ...]:
    """The device ids for the kubelet to count, for each resource and each GPU given out in fractions.

    `memory_ratio` is the promised multiple of each GPU's memory.
    """
    groups: list[DeviceIdGroup] = []
    firsts: Counter[tuple[FractionIdKind, str]] = Counter()
    for gpu in sorted(gpus, key=lambda gpu: gpu.uuid):
        for resource, kind, count in _list_counts(gpu, profile, memory_ratio):
            name = name_group(gpu.uuid)
            groups.append(
                DeviceIdGroup(
                    resource=resource,
                    kind=kind,
                    gpu=gpu.uuid,
                    numa_node=gpu.numa_node,
                    name=name,
                    count=count,
                    first=firsts[kind, name],
                )
            )
            firsts[kind, name] += count
    return tuple(groups)


def _list_counts(
    gpu: Gpu, profile: Profile, memory_ratio: float
) -> tuple[tuple[ResourceName, FractionIdKind, int], ...]:
    if isinstance(profile, CoresProfile):
        blocks = int(gpu.memory_total_bytes * memory_ratio) // profile.block_bytes
        return (profile.core, FractionIdKind.CORE, CORES), (profile.memory, FractionIdKind.MEMORY, blocks)
    return ((profile.share, FractionIdKind.SHARE, profile.shares_per_gpu),)


def find_home(ids: Iterable[DeviceId], groups: Iterable[DeviceIdGroup]) -> tuple[GpuUuid, ...]:
    """The GPUs behind the ids, the GPU with the most ids first: a guess where nothing better is known."""
    spans = defaultdict[tuple[FractionIdKind, str], list[DeviceIdGroup]](list)
    for group in groups:
        spans[group.kind, group.name].append(group)
    counts: Counter[GpuUuid] = Counter()
    for unit in _parse_all(ids):
        for span in spans[unit.kind, unit.group]:
            if span.first <= unit.number < span.first + span.count:
                counts[span.gpu] += 1
    return tuple(sorted(counts, key=lambda gpu: (-counts[gpu], gpu)))


def find_near(ids: Iterable[DeviceId], gpus: Iterable[Gpu]) -> frozenset[GpuUuid]:
    """The GPUs at the NUMA nodes named by the ids; empty where the ids name none."""
    nodes = {unit.numa_node for unit in _parse_all(ids)} - {None}
    return frozenset(gpu.uuid for gpu in gpus if gpu.numa_node in nodes)


def _parse_all(ids: Iterable[DeviceId]) -> Iterator[FractionId]:
    """The ids of fractions, parsed."""
    return (unit for unit in map(parse_fraction_id, ids) if unit is not None)


def prefer_device_ids(available: Iterable[DeviceId], required: Sequence[DeviceId], size: int) -> tuple[DeviceId, ...]:
    """The best ids for one container: of one group of GPUs if possible, else of one NUMA node.

    Of several groups with enough ids the one with the fewest left, so that others stay whole.
    Empty for a request that contradicts itself: the kubelet chooses then.
    """
    chosen = list(dict.fromkeys(required))
    free = set(available)
    if not (free.issuperset(chosen) and len(chosen) <= size <= len(free)):
        return ()
    stock = _Stock(free.difference(chosen))
    for place, _ in Counter(map(_place, chosen)).most_common():
        chosen += stock.take(place, size - len(chosen))
    nodes = dict.fromkeys(node for node, _ in map(_place, chosen))
    while len(chosen) < size:
        missing = size - len(chosen)
        node = next((node for node in nodes if stock.count(node)), None)
        place = stock.choose(stock.choose_node(missing) if node is None else node, missing)
        chosen += stock.take(place, missing)
    return tuple(chosen)


def _place(device_id: DeviceId) -> tuple[int, str]:
    """NUMA node and group of an id; an id in another form belongs nowhere."""
    unit = parse_fraction_id(device_id)
    if unit is None:
        return _NOWHERE, ""
    return _NOWHERE if unit.numa_node is None else unit.numa_node, unit.group


def _order(device_id: DeviceId) -> tuple[int, str]:
    unit = parse_fraction_id(device_id)
    return (0 if unit is None else unit.number), device_id


class _Stock:
    """The ids left to choose from, by NUMA node and group."""

    def __init__(self, free: Iterable[DeviceId]) -> None:
        self._groups = defaultdict[tuple[int, str], list[DeviceId]](list)
        for device_id in free:
            self._groups[_place(device_id)].append(device_id)

    def take(self, place: tuple[int, str], count: int) -> list[DeviceId]:
        """The ids of a group, at most `count`."""
        ids = self._groups.get(place, [])
        # Here and not before: most groups are never taken from.
        ids.sort(key=_order)
        taken = ids[:count]
        del ids[:count]
        return taken

    def count(self, node: int) -> int:
        """How many there are at a NUMA node."""
        return sum(self._sizes(node))

    def choose_node(self, count: int) -> int:
        """The NUMA node where the fewest groups have enough, of equal nodes the node with the fewest ids left."""
        return min({node for (node, _), ids in self._groups.items() if ids}, key=lambda node: self._rank(node, count))

    def _rank(self, node: int, count: int) -> tuple[int, int, int]:
        """The rank of a node; nodes with too few ids come after all others, the one with the most first."""
        total = self.count(node)
        if total < count:
            return len(self._groups) + 1, -total, node
        needed = 0
        for size in sorted(self._sizes(node), reverse=True):
            if count > 0:
                count, needed = count - size, needed + 1
        return needed, total, node

    def _sizes(self, node: int) -> list[int]:
        return [len(ids) for (at, _), ids in self._groups.items() if at == node]

    def choose(self, node: int, count: int) -> tuple[int, str]:
        """The group at a node with just enough ids, or with the most."""
        sizes = {place: len(ids) for place, ids in self._groups.items() if place[0] == node}
        enough = [place for place, size in sizes.items() if size >= count]
        if enough:
            return min(enough, key=lambda place: (sizes[place], place))
        return min(sizes, key=lambda place: (-sizes[place], place))
