"""Which nodes a pod may go to, in which order, and why not to the others: filter and prioritize, decided.

Owns the two looks at a node: the numbers first, which say at once that there is no room, and then the evaluators, which
have the last word where there seems to be. What is found out about a node is remembered until the node changes.
"""

import heapq
from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import count
from typing import Final, NamedTuple

from nodeagent.extender.account import Account, Summary, Verdict, summarise
from nodeagent.extender.cluster import Cluster
from nodeagent.extender.gpu_pod import GpuPod, Policy
from nodeagent.extender.place_pod import PodPlacement, place_pod
from nodeagent.extender.rank import Rank, rank_node, score_rank
from nodeagent.extender.texts import (
    ELSEWHERE,
    NOT_ASKED,
    NOTHING,
    UNKNOWN,
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
_KEYS_MAX: Final = 4096


class Choice(NamedTuple):
    """A node and what the pod gets there."""

    node: str
    placement: PodPlacement


class Filtered(NamedTuple):
    """The answer to filter."""

    fitting: tuple[str, ...]
    """Best first."""
    failed: Mapping[str, str]
    hopeless: Mapping[str, str]
    """Where no pod's end would help."""
    chosen: Choice | None = None
    """The best of them."""


_UNKNOWN: Final = Verdict(None, UNKNOWN)
_NOTHING: Final = Verdict(None, NOTHING, is_hopeless=True)


class Decider:
    """Answers from one picture of the cluster."""

    def __init__(self, cluster: Cluster, policy: Policy) -> None:
        self._cluster, self._policy = cluster, policy
        self._keys: dict[object, int] = {}
        self._numbers = count()

    def filter(self, pod: GpuPod, names: Sequence[str], *, only_best: bool) -> Filtered:
        """Judge each of these nodes; with `only_best` one is left, and the others are told so."""
        demand = pod.demand
        if demand is None:
            return Filtered((), {}, dict.fromkeys(names, pod.problem))
        queue: list[tuple[Rank, str]] = []
        failed: dict[str, str] = {}
        hopeless: dict[str, str] = {}
        for name, verdict in self._judge_all(pod, demand, names):
            if verdict.rank is not None:
                queue.append((verdict.rank, name))
            elif verdict.is_hopeless:
                hopeless[name] = verdict.text
            else:
                failed[name] = verdict.text
        is_exact = len(demand.containers) == 1
        most = 1 if only_best else len(queue) if is_exact else ENOUGH
        heapq.heapify(queue)
        fitting: list[str] = []
        chosen: Choice | None = None
        while queue and len(fitting) < most:
            _, name = heapq.heappop(queue)
            if is_exact and chosen is not None:
                fitting.append(name)
                continue
            placement = self.place(pod, name)
            if placement.fits:
                fitting.append(name)
                chosen = chosen or Choice(name, placement)
            else:
                assert placement.failed is not None
                failed[name] = tell_beside(placement.failed)
        failed.update(dict.fromkeys((name for _, name in queue), ELSEWHERE if only_best else NOT_ASKED))
        return Filtered(tuple(fitting), failed, hopeless, chosen)

    def prioritize(self, pod: GpuPod, names: Sequence[str]) -> list[tuple[str, int]]:
        """A score for each of these nodes, 10 for the best."""
        demand = pod.demand
        ranks: dict[str, Rank] = {}
        if demand is not None:
            for name, verdict in self._judge_all(pod, demand, names):
                if verdict.rank is not None:
                    ranks[name] = verdict.rank
        ordered = sorted(ranks, key=lambda name: (ranks[name], name))
        scores = {name: score_rank(position, len(ordered)) for position, name in enumerate(ordered)}
        return [(name, scores.get(name, 0)) for name in names]

    def place(self, pod: GpuPod, name: str) -> PodPlacement:
        """What the evaluators say of one node that gives out parts."""
        account = self._cluster.find_account(name)
        assert account is not None
        assert pod.demand is not None
        return place_pod(narrow(account.space, account.published.models, pod.selection), pod.demand)

    def judge(self, pod: GpuPod, name: str) -> Verdict:
        """What the numbers say of one node."""
        assert pod.demand is not None
        return next(self._judge_all(pod, pod.demand, (name,)))[1]

    def _judge_all(self, pod: GpuPod, demand: PodDemand, names: Iterable[str]) -> Iterator[tuple[str, Verdict]]:
        """Each node once; thousands of them are asked about at a time."""
        nodes, policy = self._cluster.nodes, self._read_policy(pod)
        key = self._number((demand, pod.selection, policy))
        for name in dict.fromkeys(names):
            entry = nodes.get(name)
            if entry is None:
                yield name, _UNKNOWN
                continue
            account = entry.account or self._cluster.find_account(name)
            if account is None:
                yield name, Verdict(None, entry.problem) if entry.problem else _NOTHING
                continue
            verdict = account.verdicts.get(key)
            if verdict is None:
                verdict = _judge(account, pod.selection, demand, policy)
                account.remember(key, verdict)
            yield name, verdict

    def _number(self, kind: object) -> int:
        """A number for a kind of pod: it is looked up once for each node, and a kind takes long to compare.

        No number ever stands for two kinds: nodes remember by it what was found out about them.
        """
        number = self._keys.get(kind)
        if number is None:
            if len(self._keys) >= _KEYS_MAX:
                self._keys.clear()
            number = self._keys[kind] = next(self._numbers)
        return number

    def _read_policy(self, pod: GpuPod) -> Policy:
        return pod.policy or self._policy


def _judge(account: Account, selection: Selection, demand: PodDemand, policy: Policy) -> Verdict:
    """One node by its numbers."""
    published = account.published
    if demand.profile != published.profile:
        return Verdict(None, tell_other_names(demand, published.profile), is_hopeless=True)
    is_free = selection.is_empty
    summary = account.summary if is_free else summarise(narrow(account.space, published.models, selection))
    lacking = _find_lacking(summary, demand)
    if lacking is None:
        return Verdict(rank_node(summary, demand, policy))
    empty = account.summary_when_empty if is_free else summarise(narrow(published.space, published.models, selection))
    hopeless = _find_lacking(empty, demand)
    if hopeless is None:
        return Verdict(None, tell_lack(summary, lacking, allowed=not is_free))
    return Verdict(None, tell_lack(empty, hopeless, allowed=not is_free), is_hopeless=True)


def _find_lacking(summary: Summary, demand: PodDemand) -> Demand | None:
    """The first container for which there are too few GPUs, whatever the others get."""
    for container in demand.containers:
        if summary.count(container.demand) < container.demand.gpus:
            return container.demand
    return None
