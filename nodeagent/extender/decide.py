"""Which nodes a pod may go to, in which order, and why not to the others: filter and prioritize, decided.

Owns the two looks at a node: the numbers first, which say at once that there is no room, and then the evaluators, which
have the last word where there seems to be. What is found out about a node is remembered until the node changes.
"""

import heapq
from collections.abc import Iterable, Mapping, Sequence
from itertools import count
from typing import Final, NamedTuple

from nodeagent.extender.account import Account, Look, Summary, Verdict
from nodeagent.extender.cluster import Cluster
from nodeagent.extender.gpu_pod import GpuPod, Policy
from nodeagent.extender.place_pod import PodPlacement, place_pod
from nodeagent.extender.rank import Rank, find_largest_part, find_most_whole, rank_part, rank_whole, score_rank
from nodeagent.extender.sums import sum_demand
from nodeagent.extender.texts import (
    ELSEWHERE,
    NOT_ASKED,
    NOTHING,
    TOGETHER,
    UNKNOWN,
    Lack,
    measure_lack,
    tell_beside,
    tell_held,
    tell_lack,
    tell_no_daemons,
    tell_other_names,
)
from nodeagent.model.ids import GpuUuid
from nodeagent.model.journal import Enforcement
from nodeagent.rules.fractions.demands import PodDemand
from nodeagent.rules.fractions.enforcement import tell_several
from nodeagent.rules.fractions.selection import narrow
from nodeagent.rules.placement.evaluators import Demand
from nodeagent.rules.placement.space import Space

ENOUGH: Final = 100
"""So many nodes with room for a pod of several containers are found by the evaluators; kube-scheduler itself is content
with as many."""
STEP: Final = 32
"""So many nodes are tried by the evaluators before others have their turn: a few milliseconds."""
_KINDS_MAX: Final = 4096
_FAILURES_MAX: Final = 4096


class Choice(NamedTuple):
    """A node and what the pod gets there."""

    node: str
    placement: PodPlacement


class Filtered(NamedTuple):
    """The answer to filter."""

    fitting: tuple[str, ...]
    """The best first, the others in any order."""
    failed: Mapping[str, str]
    hopeless: Mapping[str, str]
    """Where no pod's end would help."""
    chosen: Choice | None = None
    """The best of them."""


class _Sorted(NamedTuple):
    """Nodes by what the numbers say of them."""

    fitting: list[tuple[Rank, str]]
    failed: dict[str, str]
    hopeless: dict[str, str]


_UNKNOWN: Final = Verdict(None, UNKNOWN)
_NOTHING: Final = Verdict(None, NOTHING, is_hopeless=True)


class Decider:
    """Answers from one picture of the cluster."""

    def __init__(self, cluster: Cluster, policy: Policy) -> None:
        self._cluster, self._policy = cluster, policy
        self._kinds: dict[object, Kind] = {}
        self._numbers = count()

    def filter(self, pod: GpuPod, names: Sequence[str], *, only_best: bool) -> Filtered:
        """Judge each of these nodes; with `only_best` one is left, and the others are told so."""
        search = self.search(pod, names, only_best=only_best)
        while (found := search.go_on()) is None:
            pass
        return found

    def search(self, pod: GpuPod, names: Sequence[str], *, only_best: bool) -> "Search":
        """The same in steps, for who has others to answer meanwhile."""
        demand = pod.demand
        if demand is None or pod.problem:
            return Search(self, pod, _Sorted([], {}, dict.fromkeys(names, pod.problem)), only_best=only_best)
        return Search(self, pod, self._sort(pod, demand, names), only_best=only_best)

    def prioritize(self, pod: GpuPod, names: Sequence[str]) -> list[tuple[str, int]]:
        """A score for each of these nodes, 10 for the best."""
        if pod.demand is None or pod.problem:
            return [(name, 0) for name in names]
        ordered = sorted(self._sort(pod, pod.demand, names).fitting)
        scores = {name: score_rank(position) for position, (_, name) in enumerate(ordered)}
        return [(name, scores.get(name, 0)) for name in names]

    def list_best(self, pod: GpuPod, names: Sequence[str], most: int) -> list[str]:
        """So many of the nodes that have room by their numbers, best first."""
        assert pod.demand is not None
        return [name for _, name in heapq.nsmallest(most, self._sort(pod, pod.demand, names).fitting)]

    def place(self, pod: GpuPod, name: str, wishes: Mapping[int, Sequence[GpuUuid]] | None = None) -> PodPlacement:
        """What the evaluators say of one node that gives out parts; `wishes` are GPUs by the container's number."""
        account = self._cluster.find_account(name)
        assert account is not None
        assert pod.demand is not None
        space = narrow(account.look(pod)[0].space, account.published.models, pod.selection)
        return place_pod(space, pod.demand, wishes)

    def try_node(self, pod: GpuPod, name: str) -> PodPlacement | str:
        """What the evaluators say of one node, or why the pod does not fit there; that is remembered.

        By the kind of pod: of the node until it changes, and of all nodes in the same state.
        """
        account = self._cluster.find_account(name)
        if account is None:
            return UNKNOWN
        assert pod.demand is not None
        kind = self._find_kind(pod, pod.demand)
        space = narrow(account.look(pod)[0].space, account.published.models, pod.selection)
        verdict = kind.find_failure(space)
        if verdict is None:
            placement = place_pod(space, pod.demand)
            if placement.failed is None:
                return placement
            verdict = kind.note_failure(space, tell_beside(placement.failed))
        account.remember(kind.number, verdict)
        return verdict.text

    def can_keep(self, pod: GpuPod, choice: Choice) -> bool:
        """Whether the evaluators would still give a pod that counts nowhere what was chosen for it.

        They alone know all that keeps two from one GPU, and that a pod's own init container is in nobody's way.
        """
        if self._cluster.find_account(choice.node) is None:
            return False
        chosen = _list_gpus(choice.placement)
        return _list_gpus(self.place(pod, choice.node, chosen)) == chosen

    def judge(self, pod: GpuPod, name: str) -> Verdict:
        """What the numbers say of one node that gives out parts."""
        account = self._cluster.find_account(name)
        assert account is not None
        assert pod.demand is not None
        return self._find_kind(pod, pod.demand).judge(account)

    def _sort(self, pod: GpuPod, demand: PodDemand, names: Iterable[str]) -> _Sorted:
        """Look at each node once; thousands of them are asked about at a time."""
        nodes, kind = self._cluster.nodes, self._find_kind(pod, demand)
        found = _Sorted([], {}, {})
        for name in dict.fromkeys(names):
            entry = nodes.get(name)
            account = None if entry is None else entry.account or self._cluster.find_account(name)
            if account is not None:
                verdict = account.verdicts.get(kind.number) or account.remember(kind.number, kind.judge(account))
            elif entry is None:
                verdict = _UNKNOWN
            else:
                verdict = Verdict(None, entry.problem) if entry.problem else _NOTHING
            if verdict.rank is not None:
                found.fitting.append((verdict.rank, name))
            else:
                (found.hopeless if verdict.is_hopeless else found.failed)[name] = verdict.text
        return found

    def _find_kind(self, pod: GpuPod, demand: PodDemand) -> "Kind":
        """The kind of pod that this is.

        No number ever stands for two kinds: nodes remember by it what was found out about them.
        """
        policy = pod.policy or self._policy
        key = (demand, pod.selection, policy, pod.enforcement)
        kind = self._kinds.get(key)
        if kind is None:
            if len(self._kinds) >= _KINDS_MAX:
                self._kinds.clear()
            kind = self._kinds[key] = Kind(next(self._numbers), pod, demand, policy, self._cluster.profiles.enforcement)
        return kind


class Search:
    """A question that is being answered: the nodes with room by their numbers, tried by the evaluators, best first."""

    def __init__(self, decider: Decider, pod: GpuPod, found: _Sorted, *, only_best: bool) -> None:
        self._decider, self._pod, self._only_best = decider, pod, only_best
        self._queue, self._failed, self._hopeless = found
        heapq.heapify(self._queue)
        # Of one container the numbers say all there is to say, of several the evaluators must.
        self._is_exact = pod.demand is not None and len(pod.demand.containers) == 1
        self._most = 1 if only_best or self._is_exact else ENOUGH
        self._fitting: list[str] = []
        self._chosen: Choice | None = None

    def go_on(self) -> Filtered | None:
        """Try some nodes; the answer, or `None` where none of those had room and there are more to try.

        Once there is a choice nobody else has a turn: what it was made of must not be given away before it counts.
        """
        tried = 0
        while self._queue and len(self._fitting) < self._most:
            if tried >= STEP and not self._fitting:
                return None
            tried += 1
            _, name = heapq.heappop(self._queue)
            found = self._decider.try_node(self._pod, name)
            if isinstance(found, str):
                self._failed[name] = found
            else:
                self._fitting.append(name)
                self._chosen = self._chosen or Choice(name, found)
        return self._finish()

    def _finish(self) -> Filtered:
        rest = [name for _, name in self._queue]
        if self._is_exact and not self._only_best:
            self._fitting += rest
        else:
            self._failed.update(dict.fromkeys(rest, ELSEWHERE if self._only_best else NOT_ASKED))
        return Filtered(tuple(self._fitting), self._failed, self._hopeless, self._chosen)


def _list_gpus(placement: PodPlacement) -> dict[int, tuple[GpuUuid, ...]]:
    """The GPUs of each container; fewer containers than the pod has where it does not fit."""
    return {number: tuple(sorted(part.gpu for part in each.shares)) for number, each in placement.placements.items()}


class Kind:
    """Pods that ask for the same: judged by a node's numbers, with what is the same for all nodes found out once."""

    def __init__(self, number: int, pod: GpuPod, demand: PodDemand, policy: Policy, key: str) -> None:
        """`pod` is the first of the kind; `key` the annotation in which it says what is to hold it to its parts."""
        self.number = number
        self._pod, self._demand, self._selection, self._policy = pod, demand, pod.selection, policy
        self._key = key
        self._most_parts = max(
            (each.demand.gpus for each in demand.containers if not each.demand.is_exclusive), default=0
        )
        self._most_whole = find_most_whole(demand)
        self._largest = find_largest_part(demand)
        self._demands = tuple(dict.fromkeys(each.demand for each in demand.containers))
        """Of each container, those that are the same once."""
        first = self._demands[0]
        is_plain = len(demand.containers) == first.gpus == 1 and not self._most_whole and first.memory_percent is None
        self._part = (first.cores or 1, first.memory_bytes) if is_plain else None
        self._told: dict[tuple[Lack, int, bool, str, tuple[str, ...], int], Verdict] = {}
        """By what a node has, the container's demand, which lives as long as this does, whether it is for good, of
        which GPUs alone parts can be had, and which of how many are held back."""
        self._sums = sum_demand(demand)
        self._failures: dict[object, Verdict] = {}
        """By the state of a node's GPUs, where the evaluators found no room though the numbers spoke for it."""

    def judge(self, account: Account) -> Verdict:
        """One node."""
        published, selection = account.published, self._selection
        if self._demand.profile != published.profile:
            return Verdict(None, tell_other_names(self._demand, published.profile), is_hopeless=True)
        if published.enforcement is not None and (refusal := self._refuse_mps(account)):
            return Verdict(None, refusal, is_hopeless=True)
        now, empty = account.look(self._pod)
        if not selection.is_empty:
            models = published.models
            now, empty = (Look(narrow(each.space, models, selection), each.where) for each in (now, empty))
        return self._judge(account, now, empty)

    def find_failure(self, space: Space) -> Verdict | None:
        """What the evaluators said before of a node in the same state; `None` where that is not known."""
        return self._failures.get(_read_state(space)) if self._failures else None

    def note_failure(self, space: Space, text: str) -> Verdict:
        """The evaluators found no room on a node in this state."""
        if len(self._failures) >= _FAILURES_MAX:
            self._failures.clear()
        verdict = self._failures[_read_state(space)] = Verdict(None, text)
        return verdict

    def _refuse_mps(self, account: Account) -> str:
        """Why MPS could never hold the pod to its parts on this node, where it has to."""
        if self._pod.enforcement is Enforcement.MPS and not account.published.has_mps:
            return tell_no_daemons(self._key)
        is_too_many = self._most_parts > 1 and account.is_held_by_mps(self._pod)
        return f"{self._key}: {tell_several(self._most_parts)}" if is_too_many else ""

    def _judge(self, account: Account, now: Look, empty: Look) -> Verdict:
        if self._part is not None and (tightest := now.summary.find_tightest(*self._part)) is not None:
            return now.summary.spread if self._policy == "spread" else rank_part(now.summary, tightest)
        lacking = self._find_lacking(now.summary)
        if lacking is None and self._sums is not None and not self._sums.fit(now.summary):
            text = tell_held(TOGETHER, account.held, len(account.published.gpus))
            return Verdict(None, text, is_hopeless=not self._sums.fit(empty.summary))
        if lacking is None:
            return self._rank(now.summary)
        hopeless = self._find_lacking(empty.summary)
        if hopeless is None:
            return self._tell(account, now, lacking, is_hopeless=False)
        return self._tell(account, empty, hopeless, is_hopeless=True)

    def _rank(self, summary: Summary) -> Verdict:
        if self._largest is None:
            return rank_whole(summary, self._most_whole, self._policy)
        if self._policy == "spread":
            return summary.spread
        return rank_part(summary, summary.measure_tightest(self._largest))

    def _find_lacking(self, summary: Summary) -> Demand | None:
        """The first container for which there are too few GPUs, whatever the others get."""
        for demand in self._demands:
            if summary.count(demand) < demand.gpus:
                return demand
        return None

    def _tell(self, account: Account, look: Look, demand: Demand, *, is_hopeless: bool) -> Verdict:
        """The same for all nodes that lack the same, of which there are thousands."""
        lack = measure_lack(look.summary, demand)
        gpus = len(account.published.gpus) if account.held else 0
        key = (lack, id(demand), is_hopeless, look.where, account.held, gpus)
        verdict = self._told.get(key)
        if verdict is None:
            text = tell_lack(lack, demand, allowed=not self._selection.is_empty, where=look.where)
            verdict = self._told[key] = Verdict(None, tell_held(text, account.held, gpus), is_hopeless)
        return verdict


def _read_state(space: Space) -> object:
    """All that the evaluators go by, but for the names of the GPUs."""
    rooms = tuple(
        (room.free_cores, room.free_bytes, room.memory_bytes, room.processes, room.is_free, room.withheld, room.users)
        for room in space.rooms
    )
    return space.tree, rooms, space.rooms[0].users_max if space.rooms else None
