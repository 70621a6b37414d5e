"""One node's GPUs as the extender counts them: what the node publishes, less what its pods take.

Owns the order of belief about a pod: what its node says that its containers have, what was assumed of it a moment ago,
what its annotations say, and, where these say nothing that this node could understand, where the node's own evaluators
would put it.
Refuses to drop what does not fit: a GPU that two choices overload is over-committed, and nothing more goes there.
"""

from bisect import bisect_left
from collections import Counter
from collections.abc import Mapping
from functools import cached_property, lru_cache
from itertools import count
from typing import Final, NamedTuple

from msgspec.structs import replace

from nodeagent.extender.gpu_pod import GpuPod
from nodeagent.extender.place_pod import Parts, place_pod, sum_parts
from nodeagent.model.ids import GpuUuid
from nodeagent.model.journal import Enforcement
from nodeagent.rules.fractions.demands import Profiles, Stage
from nodeagent.rules.fractions.published import Published
from nodeagent.rules.fractions.wishes import read_wish
from nodeagent.rules.mps.parts import refuse_neighbour
from nodeagent.rules.placement.evaluators import Demand
from nodeagent.rules.placement.grouping import mask_of
from nodeagent.rules.placement.hierarchy import Tree
from nodeagent.rules.placement.space import CORES, Space

_REMEMBERED_MAX: Final = 32
OPEN_TO_MPS: Final = " open to MPS"
OUTSIDE_OF_MPS: Final = " outside of MPS"
_serial: Final = count()


class Tenant(NamedTuple):
    """A pod that counts on a node."""

    pod: GpuPod
    parts: Parts | None = None
    """What it takes, where that is known without reading its annotations."""


class Branch(NamedTuple):
    """One node of the tree by the positions below it."""

    below: int
    branches: "tuple[Branch, ...]"


class Shape:
    """How a node's GPUs are joined, as sets of positions; one for all nodes of a kind."""

    def __init__(self, groups: tuple[tuple[int, int], ...], root: Branch) -> None:
        self.groups = groups
        """Every group and how near its GPUs are to one another."""
        self.root = root
        self.known: dict[tuple[int, int], int] = {}
        """What was measured, by the free positions and how many are wanted: eight GPUs can be free in 256 ways."""


@lru_cache(maxsize=4096)
def find_shape(tree: Tree) -> Shape:
    """The tree's groups; remembered, for nodes of one kind have the same."""
    groups: list[tuple[int, int]] = []

    def walk(node: Tree) -> Branch:
        branch = Branch(mask_of(node.leaves), tuple(map(walk, node.branches)))
        if node.branches:
            groups.append((branch.below, node.score))
        return branch

    root = walk(tree)
    return Shape(tuple(groups), root)


_BARE: Final = Shape((), Branch(0, ()))


class Verdict(NamedTuple):
    """What was found out about a node for one kind of pod."""

    rank: tuple[int, ...] | None
    """Where it stands, the least the best; `None` where there is no room."""
    text: str = ""
    """What is missing."""
    is_hopeless: bool = False
    """Whether there would be none without any pod either."""


class Summary(NamedTuple):
    """What can be told of a node without asking an evaluator: enough to say where there is no room, and how full it is.

    An evaluator has the last word where there is.
    """

    rooms: tuple[tuple[int, int, int], ...]
    """Free cores, free bytes and all bytes of each GPU of which a part can be had, the fullest first."""
    whole: int
    """How many GPUs can be had alone."""
    free_mask: int
    """Which, by position."""
    free_cores: int
    free_blocks: int
    block_bytes: int
    shape: Shape
    spread: Verdict
    """Where it stands for a part of a GPU when nodes are spread; made once, for thousands are asked for it."""

    def count(self, demand: Demand) -> int:
        """How many GPUs could serve it now."""
        return self.whole if demand.cores >= CORES else len(self._list_fitting(demand))

    def find_tightest(self, cores: int, memory_bytes: int) -> tuple[int, int] | None:
        """Free cores and blocks of the GPU that the evaluator takes for a part of one; `None` where there is none.

        That is what nearly all pods ask for.
        """
        rooms = self.rooms
        # Of thousands of nodes: those that are too full are passed over at once.
        for place in range(bisect_left(rooms, (cores,)), len(rooms)):
            free, room, _ = rooms[place]
            if room >= memory_bytes:
                return free, room // self.block_bytes
        return None

    def measure_tightest(self, demand: Demand) -> tuple[int, int]:
        """The same for any part, of so many GPUs as it is asked of."""
        fitting = self._list_fitting(demand)[: demand.gpus]
        return sum(free for free, _ in fitting), sum(room // self.block_bytes for _, room in fitting)

    def _list_fitting(self, demand: Demand) -> list[tuple[int, int]]:
        """Free cores and bytes of each GPU that could serve a part."""
        cores, percent = demand.cores or 1, demand.memory_percent
        if percent is None:
            memory = demand.memory_bytes
            return [(free, room) for free, room, _ in self.rooms if free >= cores and room >= memory]
        return [(free, room) for free, room, total in self.rooms if free >= cores and room >= total * percent // 100]


def summarise(space: Space) -> Summary:
    """The account in numbers."""
    open_rooms = [room for room in space.rooms if not room.withheld]
    shared = [room for room in open_rooms if room.users_max is None or room.users < room.users_max]
    free = [position for position, room in enumerate(space.rooms) if room.is_free]
    cores = sum(room.free_cores for room in open_rooms)
    blocks = sum(room.free_bytes // space.block_bytes for room in open_rooms)
    return Summary(
        rooms=tuple(
            sorted((room.free_cores, room.free_bytes, room.memory_bytes) for room in shared if room.free_cores)
        ),
        whole=len(free),
        free_mask=mask_of(free),
        free_cores=cores,
        free_blocks=blocks,
        block_bytes=space.block_bytes,
        shape=find_shape(space.tree) if space.rooms else _BARE,
        spread=Verdict((-cores, -blocks)),
    )


class Look:
    """A node's account as some of its pods see it."""

    def __init__(self, space: Space, where: str = "") -> None:
        self.space = space
        self.where = where
        """Which of its GPUs these pods can have parts of, in words; empty for all."""

    @cached_property
    def summary(self) -> Summary:
        """In numbers."""
        return summarise(self.space)


class Account:
    """One node's account at one moment; a change makes a new one."""

    def __init__(self, profiles: Profiles, published: Published, tenants: Mapping[str, Tenant]) -> None:
        self.published = published
        self.taken: dict[str, Parts] = {}
        """By uid what each pod takes."""
        self.guessed: frozenset[str] = frozenset()
        """Pods of which nobody says where they are."""
        self._clients = Counter[GpuUuid]()
        """How many containers MPS holds to a part of each GPU."""
        self._others = set[GpuUuid]()
        """GPUs of which somebody has something whom MPS does not hold."""
        self.verdicts: dict[int, Verdict] = {}
        """What was found out about it, by the number of a kind of pod, for those come again."""
        # Not the same for all, or one answer in so many would wait until all nodes have forgotten.
        self._most = _REMEMBERED_MAX + next(_serial) % _REMEMBERED_MAX
        self.space = self._count(profiles, tenants)
        self._looks: dict[bool, tuple[Look, Look]] = {}

    @cached_property
    def plain(self) -> tuple[Look, Look]:
        """For pods in whose way MPS is not."""
        return Look(self.space), Look(self.published.space)

    def look(self, pod: GpuPod) -> tuple[Look, Look]:
        """What such a pod sees: the account as it is, and as it would be without any pod."""
        by_mps = self.is_held_by_mps(pod)
        return self.plain if by_mps is None else self._look_by(by_mps=by_mps)

    @cached_property
    def held(self) -> tuple[str, ...]:
        """The words for why nothing of its GPUs may be given, of those that have one."""
        return tuple(sorted(gpu.held for gpu in self.published.gpus if gpu.held))

    def prepare(self) -> None:
        """Have the numbers ready for whatever pod is asked about."""
        looks = [*self.plain]
        if self.published.has_mps:
            looks += [*self._look_by(by_mps=True), *self._look_by(by_mps=False)]
        for look in looks:
            _ = look.summary

    def _look_by(self, *, by_mps: bool) -> tuple[Look, Look]:
        if by_mps not in self._looks:
            where = OPEN_TO_MPS if by_mps else OUTSIDE_OF_MPS
            spaces = self._keep(self.space, by_mps=by_mps), self._keep(self.published.space, by_mps=by_mps, empty=True)
            now, empty = (
                Look(space, "" if space is before else where)
                for space, before in zip(spaces, (self.space, self.published.space), strict=True)
            )
            self._looks[by_mps] = now, empty
        return self._looks[by_mps]

    def is_held_by_mps(self, pod: GpuPod) -> bool | None:
        """Whether MPS holds the pod to its parts on this node; `None` where that makes no difference, or is not told.

        By what pod and node say now; one that started when either said something else is taken for what it is not.
        """
        if not self.published.has_mps or pod.demand is None or pod.demand.is_exclusive:
            return None
        return (pod.enforcement or self.published.enforcement) == Enforcement.MPS

    def remember(self, key: int, verdict: Verdict) -> Verdict:
        """For as long as nothing changes; bounded, for pods may ask for whatever they like."""
        if len(self.verdicts) >= self._most:
            self.verdicts.clear()
        self.verdicts[key] = verdict
        return verdict

    def _count(self, profiles: Profiles, tenants: Mapping[str, Tenant]) -> Space:
        space, unknown = self.published.space, list[tuple[GpuPod, Mapping[int, Parts]]]()
        for uid, tenant in tenants.items():
            # By the key: an earlier choice of the pod is none of what its containers have.
            bound = self._find_bound(tenant.pod, self.published.bound.get(uid, {}))
            parts = self._read_parts(profiles, tenant, bound)
            if parts is None:
                unknown.append((tenant.pod, bound))
            else:
                self.taken[uid] = parts
                self._note(tenant.pod, parts)
        # All at once: each step by itself would make the whole account anew.
        space = space.occupy(part for parts in self.taken.values() for part in parts)
        for pod, bound in sorted(unknown, key=lambda each: (each[0].created, each[0].uid)):
            assert pod.demand is not None
            by_mps = self.is_held_by_mps(pod)
            seen = space if by_mps is None else self._keep(space, by_mps=by_mps)
            guess = place_pod(seen, pod.demand)
            parts = guess.parts
            if bound:
                shares = {number: placement.shares for number, placement in guess.placements.items()}
                parts = sum_parts(pod.demand, {**shares, **bound})
            self.taken[pod.uid] = parts
            self._note(pod, parts)
            space = space.occupy(parts)
        self.guessed = frozenset(pod.uid for pod, _ in unknown)
        return space

    def _note(self, pod: GpuPod, parts: Parts) -> None:
        """Remember by which way the GPUs of a pod are used, where that is in somebody's way."""
        if self.published.has_mps:
            for part in parts:
                if part.cores < CORES and self.is_held_by_mps(pod):
                    self._clients[part.gpu] += 1
                else:
                    self._others.add(part.gpu)

    def _keep(self, space: Space, *, by_mps: bool, empty: bool = False) -> Space:
        """The account without the GPUs that MPS keeps from such a pod; the same one where there are none."""
        rooms = []
        for room, gpu in zip(space.rooms, self.published.gpus, strict=True):
            clients, has_others = (0, False) if empty else (self._clients[gpu.uuid], gpu.uuid in self._others)
            reason = refuse_neighbour(clients, gpu.mps_clients or 0, by_mps=by_mps, has_others=has_others)
            rooms.append(replace(room, withheld=reason) if reason and not room.withheld else room)
        return space if tuple(rooms) == space.rooms else replace(space, rooms=tuple(rooms))

    def _find_bound(self, pod: GpuPod, bound: Mapping[str, Parts]) -> Mapping[int, Parts]:
        """By the container's number what the node says that it has."""
        assert pod.demand is not None
        return {each.number: bound[each.name] for each in pod.demand.containers if each.name in bound}

    def _read_parts(self, profiles: Profiles, tenant: Tenant, bound: Mapping[int, Parts]) -> Parts | None:
        """What a pod takes here; `None` where nobody says so of each container that runs."""
        demand = tenant.pod.demand
        assert demand is not None
        running = [each.number for each in demand.containers if each.stage is not Stage.INIT]
        if bound and bound.keys() >= set(running):
            # All of them have started, so the init containers are over.
            return sum_parts(demand, {number: bound[number] for number in running})
        if tenant.parts is not None:
            return tenant.parts
        found = {**self._read_choice(profiles, tenant.pod), **bound}
        return sum_parts(demand, found) if found and found.keys() >= set(running) else None

    def _read_choice(self, profiles: Profiles, pod: GpuPod) -> Mapping[int, Parts]:
        """By the container's number what the pod's annotations say that it takes; nothing where that is of no use."""
        demand = pod.demand
        assert demand is not None
        if not pod.choice or demand.profile != self.published.profile:
            return {}
        if pod.chosen_node and pod.node and pod.chosen_node != pod.node:
            return {}
        profile = profiles.find(demand.profile)
        assert profile is not None
        rooms = {room.gpu: room for room in self.published.space.rooms}
        found: dict[int, Parts] = {}
        for each in demand.containers:
            wish = read_wish(
                profile,
                pod.choice,
                self.published.gpus,
                container=each.number,
                init_containers=pod.init_containers,
            )
            if len(wish.gpus) == each.demand.gpus:
                found[each.number] = tuple(each.demand.share_of(rooms[gpu]) for gpu in wish.gpus)
        return found
