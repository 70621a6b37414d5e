"""Which nodes a pod may go to, in which order, and why not to the others: filter and prioritize, decided.

Owns the two looks at a node: the numbers first, which say at once that there is no room, and then the evaluators, which
have the last word where there seems to be. What is found out about a node is remembered until the node changes.
"""

import heapq
from collections.abc import Iterable, Mapping, Sequence
from itertools import count
from typing import Final, NamedTuple

from nodeagent.extender.account import Account, Summary, Verdict, summarise
from nodeagent.extender.cluster import Cluster
from nodeagent.extender.gpu_pod import GpuPod, Policy
from nodeagent.extender.place_pod import PodPlacement, place_pod
from nodeagent.extender.rank import Rank, find_most_whole, rank_node, score_rank
from nodeagent.extender.texts import (
    ELSEWHERE,
    NOT_ASKED,
    NOTHING,
    UNKNOWN,
    Lack,
    measure_lack,
    tell_beside,
    tell_lack,
    tell_other_names,
)
from nodeagent.rules.fractions.demands import PodDemand
from nodeagent.rules.fractions.selection import Selection, narrow
from nodeagent.rules.placement.evaluators import Demand

ENOUGH: Final = 100
"""So many nodes with room for a pod of several containers are found by the evaluators; kube-scheduler itself is content
with as many."""
_KINDS_MAX: Final = 4096


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
        demand = pod.demand
        if demand is None:
            return Filtered((), {}, dict.fromkeys(names, pod.problem))
        queue, failed, hopeless = self._sort(pod, demand, names)
        heapq.heapify(queue)
        # Of one container the numbers say all there is to say, of several the evaluators must.
        is_exact = len(demand.containers) == 1
        most = 1 if only_best or is_exact else ENOUGH
        fitting: list[str] = []
        chosen: Choice | None = None
        while queue and len(fitting) < most:
            _, name = heapq.heappop(queue)
            placement = self.place(pod, name)
            if placement.fits:
                fitting.append(name)
                chosen = chosen or Choice(name, placement)
            else:
                assert placement.failed is not None
                failed[name] = tell_beside(placement.failed)
        if is_exact and not only_best:
            fitting += [name for _, name in queue]
        else:
            failed.update(dict.fromkeys((name for _, name in queue), ELSEWHERE if only_best else NOT_ASKED))
        return Filtered(tuple(fitting), failed, hopeless, chosen)

    def prioritize(self, pod: GpuPod, names: Sequence[str]) -> list[tuple[str, int]]:
        """A score for each of these nodes, 10 for the best."""
        if pod.demand is None:
            return [(name, 0) for name in names]
        ordered = sorted(self._sort(pod, pod.demand, names).fitting)
        scores = {name: score_rank(position, len(ordered)) for position, (_, name) in enumerate(ordered)}
        return [(name, scores.get(name, 0)) for name in names]

    def list_best(self, pod: GpuPod, names: Sequence[str], most: int) -> list[str]:
        """So many of the nodes that have room by their numbers, best first."""
        assert pod.demand is not None
        return [name for _, name in heapq.nsmallest(most, self._sort(pod, pod.demand, names).fitting)]

    def place(self, pod: GpuPod, name: str) -> PodPlacement:
        """What the evaluators say of one node that gives out parts."""
        account = self._cluster.find_account(name)
        assert account is not None
        assert pod.demand is not None
        return place_pod(narrow(account.space, account.published.models, pod.selection), pod.demand)

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
        key = (demand, pod.selection, pod.policy or self._policy)
        kind = self._kinds.get(key)
        if kind is None:
            if len(self._kinds) >= _KINDS_MAX:
                self._kinds.clear()
            kind = self._kinds[key] = Kind(next(self._numbers), demand, pod.selection, pod.policy or self._policy)
        return kind


class Kind:
    """Pods that ask for the same: judged by a node's numbers, with what is the same for all nodes found out once."""

    def __init__(self, number: int, demand: PodDemand, selection: Selection, policy: Policy) -> None:
        self.number = number
        self._demand, self._selection, self._policy = demand, selection, policy
        self._most_whole = find_most_whole(demand)
        first = demand.containers[0].demand
        is_plain = len(demand.containers) == first.gpus == 1 and not self._most_whole and first.memory_percent is None
        self._part = (first.cores or 1, first.memory_bytes) if is_plain else None
        self._told: dict[tuple[Lack, int, bool], Verdict] = {}
        """By what a node has, the container's demand, which lives as long as this does, and whether it is for good."""

    def judge(self, account: Account) -> Verdict:
        """One node."""
        published, selection = account.published, self._selection
        if self._demand.profile != published.profile:
            return Verdict(None, tell_other_names(self._demand, published.profile), is_hopeless=True)
        if selection.is_empty:
            return self._judge(account.summary, account.summary_when_empty)
        models = published.models
        spaces = (account.space, published.space)
        return self._judge(*(summarise(narrow(space, models, selection)) for space in spaces))

    def _judge(self, summary: Summary, empty: Summary) -> Verdict:
        lacking = self._find_lacking(summary)
        if lacking is None:
            return rank_node(summary, self._most_whole, self._policy)
        hopeless = self._find_lacking(empty)
        if hopeless is None:
            return self._tell(measure_lack(summary, lacking), lacking, is_hopeless=False)
        return self._tell(measure_lack(empty, hopeless), hopeless, is_hopeless=True)

    def _find_lacking(self, summary: Summary) -> Demand | None:
        """The first container for which there are too few GPUs, whatever the others get."""
        containers = self._demand.containers
        if self._part is not None:
            return None if summary.has_one(*self._part) else containers[0].demand
        for container in containers:
            if summary.count(container.demand) < container.demand.gpus:
                return container.demand
        return None

    def _tell(self, lack: Lack, demand: Demand, *, is_hopeless: bool) -> Verdict:
        """The same for all nodes that lack the same, of which there are thousands."""
        key = (lack, id(demand), is_hopeless)
        verdict = self._told.get(key)
        if verdict is None:
            text = tell_lack(lack, demand, allowed=not self._selection.is_empty)
            verdict = self._told[key] = Verdict(None, text, is_hopeless)
        return verdict
