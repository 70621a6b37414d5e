"""One node's GPUs in the extender's count: the published GPUs, less the fractions of the node's pods.

Owns the order of belief about a pod: the node's report of the containers' fractions, then a promise of a moment ago,
then the pod's annotations, and, without annotations that this node understands, the placement of the node's own
evaluators.

Refuses to drop an overload: a GPU overloaded by two choices is over-committed, and gets no further pod.
"""

from bisect import bisect_left
from collections import Counter
from collections.abc import Mapping
from functools import cached_property, lru_cache
from itertools import count
from typing import Final, NamedTuple

from msgspec.structs import replace

from nodeagent.extender.gpu_pod import GpuPod
from nodeagent.extender.place_pod import Fractions, place_pod, sum_fractions
from nodeagent.model.ids import GpuUuid
from nodeagent.model.journal import Enforcement
from nodeagent.rules.fractions.choices import read_scheduler_choice
from nodeagent.rules.fractions.demands import Profiles, Stage
from nodeagent.rules.fractions.published import Published
from nodeagent.rules.mps.fractions import refuse_neighbour
from nodeagent.rules.placement.grouping import mask_of
from nodeagent.rules.placement.hierarchy import Tree
from nodeagent.rules.placement.place import Demand
from nodeagent.rules.placement.space import CORES, Space

_REMEMBERED_MAX: Final = 32
OPEN_TO_MPS: Final = " open to MPS"
OUTSIDE_OF_MPS: Final = " outside of MPS"
_serial: Final = count()


class Tenant(NamedTuple):
    """A pod that counts on a node."""

    pod: GpuPod
    parts: Fractions | None = None
    """The pod's fractions, where known without the pod's annotations."""


class Branch(NamedTuple):
    """A node of the topology tree by the positions of the GPUs below."""

    below: int
    branches: "tuple[Branch, ...]"


class Shape:
    """How a node's GPUs are joined, as sets of positions; shared by all nodes of a kind."""

    def __init__(self, groups: tuple[tuple[int, int], ...], root: Branch) -> None:
        self.groups = groups
        """Every group, and how near the group's GPUs are to one another."""
        self.root = root
        self.known: dict[tuple[int, int], int] = {}
        """Measured fits, by the free positions and the number of GPUs: eight GPUs can be free in 256 ways."""


@lru_cache(maxsize=4096)
def find_shape(tree: Tree) -> Shape:
    """The tree's groups; cached, as nodes of one kind have equal trees."""
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
    """The judgement of a node for one kind of pod."""

    rank: tuple[int, ...] | None
    """The node's rank, lowest first; `None` without room."""
    text: str = ""
    """The lack."""
    is_hopeless: bool = False
    """Whether the node would have no room without any pod either."""


class Summary(NamedTuple):
    """A node in numbers, without an evaluator: enough to find a lack of room, and how full the node is.

    Where the numbers find room, an evaluator has the last word.
    """

    rooms: tuple[tuple[int, int, int], ...]
    """Free cores, free bytes and all bytes of each GPU with room for a fraction, the fullest first."""
    whole: int
    """How many whole GPUs are free."""
    free_mask: int
    """The free whole GPUs, by position."""
    free_cores: int
    free_blocks: int
    block_bytes: int
    shape: Shape
    spread: Verdict
    """The node's rank for a fraction when nodes are spread; made once, as thousands of nodes are ranked."""

    def count(self, demand: Demand) -> int:
        """How many GPUs could serve the demand now."""
        return self.whole if demand.cores >= CORES else len(self._list_fitting(demand))

    def find_tightest(self, cores: int, memory_bytes: int) -> tuple[int, int] | None:
        """Free cores and blocks of the GPU that the evaluator picks for a single fraction; `None` without room.

        Nearly all pods ask for a single fraction.
        """
        rooms = self.rooms
        # Thousands of nodes are asked: GPUs with too few free cores are skipped at once.
        for place in range(bisect_left(rooms, (cores,)), len(rooms)):
            free, room, _ = rooms[place]
            if room >= memory_bytes:
                return free, room // self.block_bytes
        return None

    def measure_tightest(self, demand: Demand) -> tuple[int, int]:
        """Free cores and blocks of the picked GPUs for any fraction, over as many GPUs as the demand has."""
        fitting = self._list_fitting(demand)[: demand.gpus]
        return sum(free for free, _ in fitting), sum(room // self.block_bytes for _, room in fitting)

    def _list_fitting(self, demand: Demand) -> list[tuple[int, int]]:
        """Free cores and bytes of each GPU with room for the fraction."""
        cores, percent = demand.cores or 1, demand.memory_percent
        if percent is None:
            memory = demand.memory_bytes
            return [(free, room) for free, room, _ in self.rooms if free >= cores and room >= memory]
        return [(free, room) for free, room, total in self.rooms if free >= cores and room >= total * percent // 100]


def summarise(space: Space) -> Summary:
    """The node's space in numbers."""
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


class SpaceView:
    """A node's account as seen by some of the pods."""

    def __init__(self, space: Space, where: str = "") -> None:
        self.space = space
        self.where = where
        """The GPUs that these pods can have fractions of, in words; empty for all."""

    @cached_property
    def summary(self) -> Summary:
        """The space in numbers."""
        return summarise(self.space)


class NodeSpace:
    """One node's account at one moment; a change makes a new account."""

    def __init__(self, profiles: Profiles, published: Published, tenants: Mapping[str, Tenant]) -> None:
        self.published = published
        self.taken: dict[str, Fractions] = {}
        """Each pod's fractions, by the pod's uid."""
        self.guessed: frozenset[str] = frozenset()
        """Pods whose GPUs are unknown."""
        self._clients = Counter[GpuUuid]()
        """How many containers MPS holds to a fraction of each GPU."""
        self._others = set[GpuUuid]()
        """GPUs with fractions that MPS does not limit."""
        self.verdicts: dict[int, Verdict] = {}
        """Verdicts on the node, by the number of a kind of pod, as kinds of pods come again."""
        # Not the same for all nodes, or one answer in so many would wait until all caches are cleared at once.
        self._most = _REMEMBERED_MAX + next(_serial) % _REMEMBERED_MAX
        self.space = self._count(profiles, tenants)
        self._looks: dict[bool, tuple[SpaceView, SpaceView]] = {}

    @cached_property
    def plain(self) -> tuple[SpaceView, SpaceView]:
        """The views of pods without a conflict with MPS."""
        return SpaceView(self.space), SpaceView(self.published.space)

    def look(self, pod: GpuPod) -> tuple[SpaceView, SpaceView]:
        """The pod's two views: the account now, and the account without any pod."""
        by_mps = self.is_held_by_mps(pod)
        return self.plain if by_mps is None else self._view_by(by_mps=by_mps)

    @cached_property
    def held(self) -> tuple[str, ...]:
        """The reasons that GPUs are held back for, of each GPU with a reason."""
        return tuple(sorted(gpu.held for gpu in self.published.gpus if gpu.held))

    def prepare(self) -> None:
        """Compute the numbers for any pod ahead of questions."""
        looks = [*self.plain]
        if self.published.has_mps:
            looks += [*self._view_by(by_mps=True), *self._view_by(by_mps=False)]
        for look in looks:
            _ = look.summary

    def _view_by(self, *, by_mps: bool) -> tuple[SpaceView, SpaceView]:
        if by_mps not in self._looks:
            where = OPEN_TO_MPS if by_mps else OUTSIDE_OF_MPS
            spaces = self._keep(self.space, by_mps=by_mps), self._keep(self.published.space, by_mps=by_mps, empty=True)
            now, empty = (
                SpaceView(space, "" if space is before else where)
                for space, before in zip(spaces, (self.space, self.published.space), strict=True)
            )
            self._looks[by_mps] = now, empty
        return self._looks[by_mps]

    def is_held_by_mps(self, pod: GpuPod) -> bool | None:
        """Whether MPS holds the pod to its fractions on this node; `None` without a difference, or if unknown.

        By the present settings of pod and node; a pod started under other settings is misjudged.
        """
        if not self.published.has_mps or pod.demand is None or pod.demand.is_exclusive:
            return None
        return (pod.enforcement or self.published.enforcement) == Enforcement.MPS

    def remember(self, key: int, verdict: Verdict) -> Verdict:
        """Cache a verdict until the next change; bounded, as pods may make any request."""
        if len(self.verdicts) >= self._most:
            self.verdicts.clear()
        self.verdicts[key] = verdict
        return verdict

    def _count(self, profiles: Profiles, tenants: Mapping[str, Tenant]) -> Space:
        space, unknown = self.published.space, list[tuple[GpuPod, Mapping[int, Fractions]]]()
        for uid, tenant in tenants.items():
            # By the key: an earlier choice of the pod is no report of its containers.
            bound = self._find_bound(tenant.pod, self.published.bound.get(uid, {}))
            fractions = self._read_fractions(profiles, tenant, bound)
            if fractions is None:
                unknown.append((tenant.pod, bound))
            else:
                self.taken[uid] = fractions
                self._note(tenant.pod, fractions)
        # All fractions at once: each step by itself would make the whole space anew.
        space = space.occupy(fraction for fractions in self.taken.values() for fraction in fractions)
        for pod, bound in sorted(unknown, key=lambda each: (each[0].created, each[0].uid)):
            assert pod.demand is not None
            by_mps = self.is_held_by_mps(pod)
            seen = space if by_mps is None else self._keep(space, by_mps=by_mps)
            guess = place_pod(seen, pod.demand)
            fractions = guess.parts
            if bound:
                shares = {number: placement.shares for number, placement in guess.placements.items()}
                fractions = sum_fractions(pod.demand, {**shares, **bound})
            self.taken[pod.uid] = fractions
            self._note(pod, fractions)
            space = space.occupy(fractions)
        self.guessed = frozenset(pod.uid for pod, _ in unknown)
        return space

    def _note(self, pod: GpuPod, parts: Fractions) -> None:
        """Count the pod's GPUs as used through MPS or past MPS, where the node has MPS daemons."""
        if self.published.has_mps:
            for fraction in parts:
                if fraction.cores < CORES and self.is_held_by_mps(pod):
                    self._clients[fraction.gpu] += 1
                else:
                    self._others.add(fraction.gpu)

    def _keep(self, space: Space, *, by_mps: bool, empty: bool = False) -> Space:
        """The space without the GPUs that MPS keeps from such a pod; the same space where MPS keeps none."""
        rooms = []
        for room, gpu in zip(space.rooms, self.published.gpus, strict=True):
            clients, has_others = (0, False) if empty else (self._clients[gpu.uuid], gpu.uuid in self._others)
            reason = refuse_neighbour(clients, gpu.mps_clients or 0, by_mps=by_mps, has_others=has_others)
            rooms.append(replace(room, withheld=reason) if reason and not room.withheld else room)
        return space if tuple(rooms) == space.rooms else replace(space, rooms=tuple(rooms))

    def _find_bound(self, pod: GpuPod, bound: Mapping[str, Fractions]) -> Mapping[int, Fractions]:
        """The fractions reported by the node, by the container's number."""
        assert pod.demand is not None
        return {each.number: bound[each.name] for each in pod.demand.containers if each.name in bound}

    def _read_fractions(self, profiles: Profiles, tenant: Tenant, bound: Mapping[int, Fractions]) -> Fractions | None:
        """A pod's fractions on this node; `None` if unknown for any running container."""
        demand = tenant.pod.demand
        assert demand is not None
        running = [each.number for each in demand.containers if each.stage is not Stage.INIT]
        if bound and bound.keys() >= set(running):
            # All containers have started, so the init containers are over.
            return sum_fractions(demand, {number: bound[number] for number in running})
        if tenant.parts is not None:
            return tenant.parts
        found = {**self._read_choice(profiles, tenant.pod), **bound}
        return sum_fractions(demand, found) if found and found.keys() >= set(running) else None

    def _read_choice(self, profiles: Profiles, pod: GpuPod) -> Mapping[int, Fractions]:
        """The fractions in the pod's annotations, by the container's number; empty where the choice is of no use."""
        demand = pod.demand
        assert demand is not None
        if not pod.choice or demand.profile != self.published.profile:
            return {}
        if pod.chosen_node and pod.node and pod.chosen_node != pod.node:
            return {}
        profile = profiles.find(demand.profile)
        assert profile is not None
        rooms = {room.gpu: room for room in self.published.space.rooms}
        found: dict[int, Fractions] = {}
        for each in demand.containers:
            request = read_scheduler_choice(
                profile,
                pod.choice,
                self.published.gpus,
                container=each.number,
                init_containers=pod.init_containers,
            )
            if len(request.gpus) == each.demand.gpus:
                found[each.number] = tuple(each.demand.share_of(rooms[gpu]) for gpu in request.gpus)
        return found
