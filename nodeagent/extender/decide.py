"""Filter and prioritize, decided: the nodes for a pod, their order, and the reasons against the other nodes.

Owns the two steps of a judgement: numbers first, to find a lack of room at once, then the evaluators, with the last
word where the numbers find room. A node's verdicts are cached until the node changes.
"""

import heapq
from collections.abc import Iterable, Mapping, Sequence
from itertools import count
from typing import Final, NamedTuple

from nodeagent.extender.cluster import Cluster
from nodeagent.extender.gpu_pod import GpuPod, Policy
from nodeagent.extender.messages import (
    ELSEWHERE,
    NOT_ASKED,
    NOTHING,
    TOGETHER,
    UNKNOWN,
    Lack,
    describe_beside,
    describe_held,
    describe_lack,
    describe_no_daemons,
    describe_other_names,
    measure_lack,
)
from nodeagent.extender.node_space import NodeSpace, SpaceView, Summary, Verdict
from nodeagent.extender.place_pod import PodPlacement, place_pod
from nodeagent.extender.rank import Rank, find_largest_fraction, find_most_whole, rank_fraction, rank_whole, score_rank
from nodeagent.extender.sums import sum_demand
from nodeagent.model.ids import GpuUuid
from nodeagent.model.journal import Enforcement
from nodeagent.rules.fractions.demands import PodDemand
from nodeagent.rules.fractions.requests import explain_several
from nodeagent.rules.fractions.selection import narrow
from nodeagent.rules.placement.place import Demand
from nodeagent.rules.placement.space import Space

ENOUGH: Final = 100
"""The most nodes that the evaluators find for a pod of several containers; enough for kube-scheduler itself too."""
STEP: Final = 32
"""Nodes tried by the evaluators before other questions run: a few milliseconds."""
_KINDS_MAX: Final = 4096
_FAILURES_MAX: Final = 4096


class Choice(NamedTuple):
    """A node, and the pod's placement on the node."""

    node: str
    placement: PodPlacement


class Filtered(NamedTuple):
    """The answer to filter."""

    fitting: tuple[str, ...]
    """The best node first, the others in any order."""
    failed: Mapping[str, str]
    hopeless: Mapping[str, str]
    """Nodes where no pod's end would help."""
    chosen: Choice | None = None
    """The best of the fitting nodes."""


class _Sorted(NamedTuple):
    """Nodes sorted by their numbers."""

    fitting: list[tuple[Rank, str]]
    failed: dict[str, str]
    hopeless: dict[str, str]


_UNKNOWN: Final = Verdict(None, UNKNOWN)
_NOTHING: Final = Verdict(None, NOTHING, is_hopeless=True)


class Decider:
    """Answers from one index of the cluster."""

    def __init__(self, cluster: Cluster, policy: Policy) -> None:
        self._cluster, self._policy = cluster, policy
        self._kinds: dict[object, Kind] = {}
        self._numbers = count()

    def filter(self, pod: GpuPod, names: Sequence[str], *, only_best: bool) -> Filtered:
        """Judge each of the nodes; with `only_best` one node is left, and the others get the reason."""
        search = self.search(pod, names, only_best=only_best)
        while (found := search.go_on()) is None:
            pass
        return found

    def search(self, pod: GpuPod, names: Sequence[str], *, only_best: bool) -> "Search":
        """Filter in steps, so that the caller can answer other questions meanwhile."""
        demand = pod.demand
        if demand is None or pod.problem:
            return Search(self, pod, _Sorted([], {}, dict.fromkeys(names, pod.problem)), only_best=only_best)
        return Search(self, pod, self._sort(pod, demand, names), only_best=only_best)

    def prioritize(self, pod: GpuPod, names: Sequence[str]) -> list[tuple[str, int]]:
        """A score for each of the nodes, 10 for the best."""
        if pod.demand is None or pod.problem:
            return [(name, 0) for name in names]
        ordered = sorted(self._sort(pod, pod.demand, names).fitting)
        scores = {name: score_rank(position) for position, (_, name) in enumerate(ordered)}
        return [(name, scores.get(name, 0)) for name in names]

    def list_best(self, pod: GpuPod, names: Sequence[str], most: int) -> list[str]:
        """At most `most` nodes with room by the numbers, best first."""
        assert pod.demand is not None
        return [name for _, name in heapq.nsmallest(most, self._sort(pod, pod.demand, names).fitting)]

    def place(self, pod: GpuPod, name: str, requests: Mapping[int, Sequence[GpuUuid]] | None = None) -> PodPlacement:
        """The evaluators' placement on one node with fractions; `requests` are preferred GPUs by container number."""
        account = self._cluster.find_space(name, pod.device_class)
        assert account is not None
        assert pod.demand is not None
        space = narrow(account.look(pod)[0].space, account.published.models, pod.selection)
        return place_pod(space, pod.demand, requests)

    def try_node(self, pod: GpuPod, name: str) -> PodPlacement | str:
        """The evaluators' placement on one node, or the reason against the node; the reason is cached.

        By the kind of pod: for the node until the next change, and for all nodes in the same state.
        """
        account = self._cluster.find_space(name, pod.device_class)
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
            verdict = kind.note_failure(space, describe_beside(placement.failed))
        account.remember(kind.number, verdict)
        return verdict.text

    def can_keep(self, pod: GpuPod, choice: Choice) -> bool:
        """Whether the evaluators would still give the choice to a pod that counts nowhere.

        Only the evaluators know every conflict on a GPU, and that a pod's own init container blocks nobody.
        """
        if self._cluster.find_space(choice.node, pod.device_class) is None:
            return False
        chosen = _list_gpus(choice.placement)
        return _list_gpus(self.place(pod, choice.node, chosen)) == chosen

    def judge(self, pod: GpuPod, name: str) -> Verdict:
        """The verdict of the numbers on one node with fractions."""
        account = self._cluster.find_space(name, pod.device_class)
        assert account is not None
        assert pod.demand is not None
        return self._find_kind(pod, pod.demand).judge(account)

    def _sort(self, pod: GpuPod, demand: PodDemand, names: Iterable[str]) -> _Sorted:
        """Judge each node once; a question has thousands of nodes."""
        nodes, kind, device_class = self._cluster.nodes, self._find_kind(pod, demand), demand.device_class
        found = _Sorted([], {}, {})
        for name in dict.fromkeys(names):
            entry = nodes.get(name)
            account = None
            if entry is not None:
                account = entry.accounts.get(device_class) or self._cluster.find_space(name, device_class)
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
        """The kind of the pod.

        No number ever stands for two kinds: nodes cache their verdicts by the number.
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
    """A question in progress: the nodes with room by the numbers, tried by the evaluators, best first."""

    def __init__(self, decider: Decider, pod: GpuPod, found: _Sorted, *, only_best: bool) -> None:
        self._decider, self._pod, self._only_best = decider, pod, only_best
        self._queue, self._failed, self._hopeless = found
        heapq.heapify(self._queue)
        # For one container the numbers are exact, for several the evaluators decide.
        self._is_exact = pod.demand is not None and len(pod.demand.containers) == 1
        self._most = 1 if only_best or self._is_exact else ENOUGH
        self._fitting: list[str] = []
        self._chosen: Choice | None = None

    def go_on(self) -> Filtered | None:
        """Try some nodes; the answer, or `None` where none of the tried nodes had room and more nodes are left.

        Once there is a choice no other question runs: the chosen GPUs must not be given away before the choice counts.
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
    """The GPUs of each container; fewer containers than the pod has where the pod does not fit."""
    return {
        number: tuple(sorted(fraction.gpu for fraction in each.shares)) for number, each in placement.placements.items()
    }


class Kind:
    """Pods with equal demands: judged by a node's numbers, with facts common to all nodes found out once."""

    def __init__(self, number: int, pod: GpuPod, demand: PodDemand, policy: Policy, key: str) -> None:
        """`pod` is the first of the kind; `key` the annotation that names the pod's enforcement."""
        self.number = number
        self._pod, self._demand, self._selection, self._policy = pod, demand, pod.selection, policy
        self._key = key
        self._most_parts = max(
            (each.demand.gpus for each in demand.containers if not each.demand.is_exclusive), default=0
        )
        self._most_whole = find_most_whole(demand)
        self._largest = find_largest_fraction(demand)
        self._demands = tuple(dict.fromkeys(each.demand for each in demand.containers))
        """The containers' demands, equal demands once."""
        first = self._demands[0]
        is_plain = len(demand.containers) == first.gpus == 1 and not self._most_whole and first.memory_percent is None
        self._part = (first.cores or 1, first.memory_bytes) if is_plain else None
        self._told: dict[tuple[Lack, int, bool, str, tuple[str, ...], int], Verdict] = {}
        """Verdicts by the node's lack, the identity of the container's demand (as long-lived as this kind), whether
        hopeless, the GPUs open to the pod, the held back GPUs and the number of GPUs."""
        self._sums = sum_demand(demand)
        self._failures: dict[object, Verdict] = {}
        """By the state of a node's GPUs, where the numbers found room and the evaluators did not."""

    def judge(self, account: NodeSpace) -> Verdict:
        """The verdict on one node."""
        published, selection = account.published, self._selection
        if self._demand.profile != published.profile:
            return Verdict(None, describe_other_names(self._demand, published.profile), is_hopeless=True)
        if published.enforcement is not None and (refusal := self._refuse_mps(account)):
            return Verdict(None, refusal, is_hopeless=True)
        now, empty = account.look(self._pod)
        if not selection.is_empty:
            models = published.models
            now, empty = (SpaceView(narrow(each.space, models, selection), each.where) for each in (now, empty))
        return self._judge(account, now, empty)

    def find_failure(self, space: Space) -> Verdict | None:
        """The evaluators' earlier reason against a node in the same state; `None` if unknown."""
        return self._failures.get(_read_state(space)) if self._failures else None

    def note_failure(self, space: Space, text: str) -> Verdict:
        """The evaluators found no room on a node in this state."""
        if len(self._failures) >= _FAILURES_MAX:
            self._failures.clear()
        verdict = self._failures[_read_state(space)] = Verdict(None, text)
        return verdict

    def _refuse_mps(self, account: NodeSpace) -> str:
        """Why MPS could never hold the pod to its fractions on this node, where MPS has to."""
        if self._pod.enforcement is Enforcement.MPS and not account.published.has_mps:
            return describe_no_daemons(self._key)
        is_too_many = self._most_parts > 1 and account.is_held_by_mps(self._pod)
        return f"{self._key}: {explain_several(self._most_parts)}" if is_too_many else ""

    def _judge(self, account: NodeSpace, now: SpaceView, empty: SpaceView) -> Verdict:
        if self._part is not None and (tightest := now.summary.find_tightest(*self._part)) is not None:
            return now.summary.spread if self._policy == "spread" else rank_fraction(now.summary, tightest)
        lacking = self._find_lacking(now.summary)
        if lacking is None and self._sums is not None and not self._sums.fit(now.summary):
            text = describe_held(TOGETHER, account.held, len(account.published.gpus))
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
        return rank_fraction(summary, summary.measure_tightest(self._largest))

    def _find_lacking(self, summary: Summary) -> Demand | None:
        """The demand of the first container with too few GPUs, whatever the other containers get."""
        for demand in self._demands:
            if summary.count(demand) < demand.gpus:
                return demand
        return None

    def _tell(self, account: NodeSpace, look: SpaceView, demand: Demand, *, is_hopeless: bool) -> Verdict:
        """The verdict for a lack; shared by the thousands of nodes with the same lack."""
        lack = measure_lack(look.summary, demand)
        gpus = len(account.published.gpus) if account.held else 0
        key = (lack, id(demand), is_hopeless, look.where, account.held, gpus)
        verdict = self._told.get(key)
        if verdict is None:
            text = describe_lack(lack, demand, allowed=not self._selection.is_empty, where=look.where)
            verdict = self._told[key] = Verdict(None, describe_held(text, account.held, gpus), is_hopeless)
        return verdict


def _read_state(space: Space) -> object:
    """The evaluators' inputs, except for the names of the GPUs."""
    rooms = tuple(
        (room.free_cores, room.free_bytes, room.memory_bytes, room.processes, room.is_free, room.withheld, room.users)
        for room in space.rooms
    )
    return space.tree, rooms, space.rooms[0].users_max if space.rooms else None
