"""The ids by which the kubelet counts parts of GPUs: how many there are, which of them go together, where they belong.

Owns capacity, counted and rounded down for each GPU by itself, so that nothing is promised that no GPU can serve.
An id steers, it binds nothing: the GPU is chosen when the container starts.
"""

from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Sequence
from typing import Final

from nodeagent.model.gpu import Gpu
from nodeagent.model.ids import DeviceId, GpuUuid, ResourceName
from nodeagent.model.values import Value
from nodeagent.rules.fractions.profiles import CoresProfile, Profile
from nodeagent.rules.ids import Token, TokenKind, name_group, parse_token, render_token
from nodeagent.rules.placement.space import CORES

_NOWHERE: Final = -1
"""Where ids belong of which no NUMA node is known."""


class TokenGroup(Value, frozen=True):
    """The ids of one resource that one GPU stands for: they are as healthy as it is."""

    resource: ResourceName
    kind: TokenKind
    gpu: GpuUuid
    numa_node: int | None
    name: str
    count: int
    first: int = 0
    """More than 0 only where two GPUs have the same name of a group."""

    def list_ids(self) -> Iterator[DeviceId]:
        """In order of their numbers."""
        for number in range(self.first, self.first + self.count):
            yield render_token(Token(self.kind, self.numa_node, self.name, number))


def plan_tokens(gpus: Iterable[Gpu], profile: Profile, memory_ratio: float = 1.0) -> tuple[TokenGroup, ...]:
    """What the kubelet may count, for each resource and each GPU that is given in parts.

    Args:
        gpus: those that are given in parts.
        profile: by which names.
        memory_ratio: how much of its memory each GPU promises; more than 1 promises more than there is.
    """
    groups: list[TokenGroup] = []
    firsts: Counter[tuple[TokenKind, str]] = Counter()
    for gpu in sorted(gpus, key=lambda gpu: gpu.uuid):
        for resource, kind, count in _list_counts(gpu, profile, memory_ratio):
            name = name_group(gpu.uuid)
            groups.append(
                TokenGroup(
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


def _list_counts(gpu: Gpu, profile: Profile, memory_ratio: float) -> tuple[tuple[ResourceName, TokenKind, int], ...]:
    if isinstance(profile, CoresProfile):
        blocks = int(gpu.memory_total_bytes * memory_ratio) // profile.block_bytes
        return (profile.core, TokenKind.CORE, CORES), (profile.memory, TokenKind.MEMORY, blocks)
    return ((profile.share, TokenKind.SHARE, profile.shares_per_gpu),)


def find_home(ids: Iterable[DeviceId], groups: Iterable[TokenGroup]) -> tuple[GpuUuid, ...]:
    """The GPUs that these ids stand for, those of most of them first: a guess where nothing better is known."""
    spans = defaultdict[tuple[TokenKind, str], list[TokenGroup]](list)
    for group in groups:
        spans[group.kind, group.name].append(group)
    counts: Counter[GpuUuid] = Counter()
    for token in _parse_all(ids):
        for span in spans[token.kind, token.group]:
            if span.first <= token.number < span.first + span.count:
                counts[span.gpu] += 1
    return tuple(sorted(counts, key=lambda gpu: (-counts[gpu], gpu)))


def find_near(ids: Iterable[DeviceId], gpus: Iterable[Gpu]) -> frozenset[GpuUuid]:
    """The GPUs at the NUMA nodes that these ids name; none where they name none."""
    nodes = {token.numa_node for token in _parse_all(ids)} - {None}
    return frozenset(gpu.uuid for gpu in gpus if gpu.numa_node in nodes)


def _parse_all(ids: Iterable[DeviceId]) -> Iterator[Token]:
    """Those that are tokens."""
    return (token for token in map(parse_token, ids) if token is not None)


def prefer_tokens(available: Iterable[DeviceId], required: Sequence[DeviceId], size: int) -> tuple[DeviceId, ...]:
    """The ids that one container had better get: of one group of GPUs if that can be, else of one NUMA node.

    Of several groups that have enough the one with the fewest left, so that others stay whole.
    Nothing for a request that contradicts itself: the kubelet chooses then.
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
    """NUMA node and group of an id; what is no token belongs nowhere."""
    token = parse_token(device_id)
    if token is None:
        return _NOWHERE, ""
    return _NOWHERE if token.numa_node is None else token.numa_node, token.group


def _order(device_id: DeviceId) -> tuple[int, str]:
    token = parse_token(device_id)
    return (0 if token is None else token.number), device_id


class _Stock:
    """What is left to choose from, by NUMA node and group."""

    def __init__(self, free: Iterable[DeviceId]) -> None:
        self._groups = defaultdict[tuple[int, str], list[DeviceId]](list)
        for device_id in free:
            self._groups[_place(device_id)].append(device_id)

    def take(self, place: tuple[int, str], count: int) -> list[DeviceId]:
        """As many of a group as it has, at most so many."""
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
        """The NUMA node at which the fewest groups have enough, of equal ones that with the fewest left."""
        return min({node for (node, _), ids in self._groups.items() if ids}, key=lambda node: self._rank(node, count))

    def _rank(self, node: int, count: int) -> tuple[int, int, int]:
        """Where a node has too few for it, the one with the most comes first, after all that have enough."""
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
        """The group at a node that has just enough, or the one that has the most."""
        sizes = {place: len(ids) for place, ids in self._groups.items() if place[0] == node}
        enough = [place for place, size in sizes.items() if size >= count]
        if enough:
            return min(enough, key=lambda place: (sizes[place], place))
        return min(sizes, key=lambda place: (-sizes[place], place))
