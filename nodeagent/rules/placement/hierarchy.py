"""The best group where GPUs form a hierarchy: boards, switches, sockets, with or without NVSwitch. Nearly all nodes do.

Owns the exact search for such scores. The cost grows with the number of ways to write a count as a sum, not with the
number of cuts: at each node of the tree only the number of each group's GPUs below matters, not their names.
Equal subtrees share one table.

Refuses nothing: for scores without a hierarchy the answer is by the nearest hierarchy that is nowhere below them.
"""

from collections.abc import Iterator, Mapping
from functools import cache, reduce
from itertools import combinations_with_replacement, product
from typing import NamedTuple

from nodeagent.model.values import Value
from nodeagent.rules.placement.grouping import (
    Choice,
    Request,
    Scores,
    mask_of,
    positions_of,
    score_between,
    score_within,
)


class Tree(Value, frozen=True):
    """GPUs with the same score between them, or better further down; a leaf is one GPU and has no branches."""

    score: int = 0
    branches: "tuple[Tree, ...]" = ()
    position: int = -1

    @property
    def leaves(self) -> tuple[int, ...]:
        """The positions below, in the search's order of preference."""
        if not self.branches:
            return (self.position,)
        return tuple(leaf for branch in self.branches for leaf in branch.leaves)

    def fits(self, scores: Scores) -> bool:
        """Whether every pair below has the score of the pair's meeting node."""
        below = [branch.leaves for branch in self.branches]
        return all(branch.fits(scores) for branch in self.branches) and all(
            scores[one][other] == self.score
            for index, leaves in enumerate(below)
            for others in below[:index]
            for one in leaves
            for other in others
        )


class State(NamedTuple):
    """How the GPUs below a node are shared out."""

    chosen: int
    remainder: int
    others: tuple[int, ...]
    """Members of each other group with any, in descending order."""


class Worth(NamedTuple):
    """The best worth of a state; compared from left to right, more is better, and all fields add up."""

    total: int
    own: int
    loss: int
    members: int
    """The chosen group, one bit for each GPU below the node, the first GPU in the highest place."""


class Table(NamedTuple):
    """All states of a node."""

    gpus: int
    best: Mapping[State, Worth]


def plan_tree(scores: Scores, available: int) -> Tree:
    """Join the GPUs from the best score down; at least one must be available."""
    members = positions_of(available)
    trees = [Tree(position=position) for position in members]
    for score in sorted({scores[one][other] for one in members for other in members if one < other}, reverse=True):
        trees = _join(trees, scores, score)
    return trees[0]


def _join(trees: list[Tree], scores: Scores, score: int) -> list[Tree]:
    """Put trees under one node if they reach each other, directly or by way of others, with the score or better."""
    joined: list[list[Tree]] = []
    for tree in trees:
        near = [group for group in joined if any(_reaches(tree, other, scores, score) for other in group)]
        joined = [group for group in joined if group not in near]
        joined.append([*(other for group in near for other in group), tree])
    return sorted(
        (
            Tree(score=score, branches=tuple(sorted(group, key=_first))) if len(group) > 1 else group[0]
            for group in joined
        ),
        key=_first,
    )


def _first(tree: Tree) -> int:
    return min(tree.leaves)


def _reaches(tree: Tree, other: Tree, scores: Scores, score: int) -> bool:
    return any(scores[one][two] >= score for one in tree.leaves for two in other.leaves)


def choose_in_hierarchy(scores: Scores, request: Request, tree: Tree) -> Choice:
    """The best group for a request by the tree's scores, reported with the real ones where a group is concerned."""
    worth = _Search(request).choose(tree)
    leaves = tree.leaves
    group = mask_of([leaf for place, leaf in enumerate(reversed(leaves)) if worth.members >> place & 1])
    return Choice(
        worth.total, score_within(scores, group), -score_between(scores, group, request.available ^ group), group
    )


class _Search:
    """The search of a request, with the tables of the search."""

    def __init__(self, request: Request) -> None:
        self._request, self._size, self._remainder = request, request.size, request.remainder
        self._others = request.available.bit_count() // request.size - 1
        self._tables: dict[object, Table] = {}
        self._mixes = cache(self._plan_mixes)

    def choose(self, tree: Tree) -> Worth:
        """The best worth of the whole tree with every group complete."""
        return self._table(tree)[1].best[State(self._size, self._remainder, (self._size,) * self._others)]

    def _table(self, tree: Tree) -> tuple[object, Table]:
        """A node's table, and the node's shape: nodes of equal shape have the same table."""
        if not tree.branches:
            bit = 1 << tree.position
            role = bool(bit & self._request.required), bool(bit & self._request.forbidden)
            return role, self._tables.setdefault(role, self._leaf(bit))
        below = [self._table(branch) for branch in tree.branches]
        shape: object = (tree.score, tuple(shape for shape, _ in below))
        if shape not in self._tables:
            self._tables[shape] = reduce(
                lambda left, right: self._merge(left, right, tree.score), (table for _, table in below)
            )
        return shape, self._tables[shape]

    def _leaf(self, bit: int) -> Table:
        """One GPU is in the chosen group, or in the remainder, or in one of the others."""
        best: dict[State, Worth] = {}
        if not bit & self._request.forbidden:
            best[State(1, 0, ())] = Worth(0, 0, 0, 1)
        if not bit & self._request.required and self._remainder:
            best[State(0, 1, ())] = Worth(0, 0, 0, 0)
        if not bit & self._request.required and self._others:
            best[State(0, 0, (1,))] = Worth(0, 0, 0, 0)
        return Table(1, best)

    def _merge(self, left: Table, right: Table, score: int) -> Table:
        """Merge two sets of GPUs with the given score between them."""
        best: dict[State, Worth] = {}
        states, twins = left.best.items(), left is right
        # Twins are interchangeable: the better members come first, and no pair is looked at twice.
        pairs = combinations_with_replacement(states, 2) if twins else product(states, right.best.items())
        for ((chosen, remainder, others), worth), ((more_chosen, more_remainder, more_others), more) in pairs:
            if not self._has_room(left.gpus + right.gpus, chosen + more_chosen, remainder + more_remainder):
                continue
            own = chosen * more_chosen
            missed = chosen * (right.gpus - more_chosen) + more_chosen * (left.gpus - chosen)
            members = worth.members, more.members
            first, second = sorted(members, reverse=True) if twins else members
            for mixed, met in self._mixes(others, more_others):
                state = State(chosen + more_chosen, remainder + more_remainder, mixed)
                merged = Worth(
                    worth.total + more.total + score * (own + remainder * more_remainder + met),
                    worth.own + more.own + score * own,
                    worth.loss + more.loss - score * missed,
                    first << right.gpus | second,
                )
                if state not in best or best[state] < merged:
                    best[state] = merged
        return Table(left.gpus + right.gpus, best)

    def _has_room(self, count: int, chosen: int, remainder: int) -> bool:
        """Whether the GPUs fit into the groups with the given counts."""
        others = count - chosen - remainder
        return chosen <= self._size and remainder <= self._remainder and others <= self._others * self._size

    def _plan_mixes(self, left: tuple[int, ...], right: tuple[int, ...]) -> tuple[tuple[tuple[int, ...], int], ...]:
        """Every way to join groups of the left with groups of the right, and how many pairs of GPUs thereby meet."""
        best: dict[tuple[int, ...], int] = {}
        for mixed, met in self._join_groups(left, right, self._others):
            key = tuple(sorted(mixed, reverse=True))
            best[key] = max(met, best.get(key, 0))
        return tuple(best.items())

    def _join_groups(
        self, left: tuple[int, ...], right: tuple[int, ...], room: int
    ) -> Iterator[tuple[tuple[int, ...], int]]:
        if room < max(len(left), len(right)):
            return
        if not left:
            yield right, 0
            return
        first, rest = left[0], left[1:]
        for mixed, met in self._join_groups(rest, right, room - 1):
            yield (first, *mixed), met
        for partner in sorted({count for count in right if first + count <= self._size}):
            place = right.index(partner)
            for mixed, met in self._join_groups(rest, right[:place] + right[place + 1 :], room - 1):
                yield (first + partner, *mixed), met + first * partner
