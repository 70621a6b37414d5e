"""Which group of GPUs to give away, so that the group and what is left over are both as well connected as can be.

Owns the exact search: the available GPUs are cut into groups of the size asked for (one group may be smaller), and the
best cut is the one whose groups' pair scores add up to the most. The reference enumerates every cut, which for pairs
out of 16 GPUs is two million. Here the best cut of each remaining set is computed once and remembered, GPUs that could
change places without changing any score are treated as alike (a board with NVSwitch has two or three kinds, not
sixteen), and a bound drops what cannot win.

Sets of GPUs are bit masks over positions: the lowest bit is position 0.
Refuses devices, ids and settings: it knows positions and scores.
"""

from collections.abc import Iterator, Sequence
from typing import NamedTuple


class Choice(NamedTuple):
    """A group, and why it is better or worse than another: compared from left to right, more is better."""

    total: int
    """Score of the best cut that contains this group: the sum over all its groups."""
    own: int
    """Score of this group alone."""
    cut: int
    """Minus what the group's connections to the GPUs left over add up to: a group that nobody else misses is better."""
    group: int

    @property
    def positions(self) -> tuple[int, ...]:
        """The group's members in ascending order."""
        return positions_of(self.group)

    def beats(self, other: "Choice | None") -> bool:
        """Whether this is the better choice; the lowest positions win where all scores are equal."""
        if other is None:
            return True
        mine, others = self[:3], other[:3]
        return mine > others or (mine == others and self.positions < other.positions)


def positions_of(mask: int) -> tuple[int, ...]:
    """The positions in a set, ascending."""
    return tuple(position for position in range(mask.bit_length()) if mask >> position & 1)


def choose_group(scores: Sequence[Sequence[int]], available: int, required: int, size: int) -> Choice:
    """The best group of exactly this size out of `available` with all of `required`.

    Needs `required` within `available`, and `size` between the two counts and at least 1.
    """
    return next(_Search(scores, available, required, size).ranking(limit=1))


def rank_groups(scores: Sequence[Sequence[int]], available: int, required: int, size: int) -> tuple[Choice, ...]:
    """The best group and the best one of another kind, if there is one; like `choose_group` otherwise.

    Groups that differ only by GPUs that are alike are one kind, represented by the lowest positions.
    """
    return tuple(_Search(scores, available, required, size).ranking(limit=2))


class _Search:
    """One request's search; nothing outlives it."""

    def __init__(self, scores: Sequence[Sequence[int]], available: int, required: int, size: int) -> None:
        self._scores, self._available, self._required, self._size = scores, available, required, size
        members = positions_of(available)
        self._alike = _find_alike(scores, members, required)
        # Twice the most that a GPU can add to any group, so that a bound is one sum of integers.
        self._reach = {
            one: sum(sorted((scores[one][other] for other in members if other != one), reverse=True)[: size - 1])
            for one in members
        }
        self._best_cut: dict[int, int] = {}

    def ranking(self, limit: int) -> Iterator[Choice]:
        """The best kinds of groups, best first, at most `limit` of them."""
        candidates = sorted(self._first_groups(), reverse=True)
        for _ in range(limit):
            best: Choice | None = None
            for bound, own, cut, group in candidates:
                if best is not None and (bound, own, cut) < (2 * best.total, best.own, best.cut):
                    break
                choice = Choice(own + self._cut(self._available ^ group), own, cut, group)
                best = choice if choice.beats(best) else best
            if best is None:
                return
            yield best
            candidates = [candidate for candidate in candidates if candidate[3] != best.group]

    def _first_groups(self) -> Iterator[tuple[int, int, int, int]]:
        """Every kind of group that may be given away: twice the bound on its cut, its score, its loss, itself."""
        required = positions_of(self._required)
        everywhere = self._bound(self._available)
        missing = self._size - len(required)
        for group, own in self._extend(
            required, self._required, self._score(required), self._available ^ self._required, missing
        ):
            outside = positions_of(self._available ^ group)
            cut = sum(self._scores[one][other] for one in positions_of(group) for other in outside)
            yield everywhere - self._bound(group) + 2 * own, own, -cut, group

    def _cut(self, mask: int) -> int:
        """Score of the best cut of this set into groups of the size asked for and one smaller remainder."""
        known = self._best_cut.get(mask)
        if known is None:
            known = self._best_cut[mask] = self._compute_cut(mask)
        return known

    def _compute_cut(self, mask: int) -> int:
        if mask.bit_count() <= self._size:
            return self._score(positions_of(mask))
        # Each cut has one group with the lowest GPU in it: a whole one, or the remainder if there is one.
        first = mask & -mask
        position = first.bit_length() - 1
        sizes = {self._size, mask.bit_count() % self._size} - {0}
        everywhere = self._bound(mask)
        options = sorted(
            (
                (everywhere - self._bound(group) + 2 * own, own, group)
                for size in sizes
                for group, own in self._extend((position,), first, 0, mask ^ first, size - 1)
            ),
            reverse=True,
        )
        best = -1
        for bound, own, group in options:
            if bound <= 2 * best:
                break
            best = max(best, own + self._cut(mask ^ group))
        return best

    def _extend(
        self, members: tuple[int, ...], group: int, score: int, candidates: int, missing: int
    ) -> Iterator[tuple[int, int]]:
        """Every kind of group that adds `missing` of the candidates to these members, with its score."""
        if missing == 0:
            yield group, score
            return
        while candidates.bit_count() >= missing:
            bit = candidates & -candidates
            position = bit.bit_length() - 1
            row = self._scores[position]
            added = sum([row[member] for member in members])
            yield from self._extend(
                (*members, position), group | bit, score + added, candidates ^ bit, missing - 1
            )
            # Without this GPU none that is alike may join: that would be the same kind of group once more.
            candidates &= ~self._alike[position]

    def _score(self, members: Sequence[int]) -> int:
        return sum(self._scores[one][other] for one in members for other in members if one < other)

    def _bound(self, mask: int) -> int:
        return sum([self._reach[position] for position in positions_of(mask)])


def _find_alike(scores: Sequence[Sequence[int]], members: Sequence[int], required: int) -> dict[int, int]:
    """For each member the set of those, itself included, that could take its place without changing any score."""
    classes: dict[int, int] = {}
    for one in members:
        for representative in classes:
            same_role = (required >> one & 1) == (required >> representative & 1)
            if same_role and all(
                scores[one][other] == scores[representative][other]
                for other in members
                if other not in (one, representative)
            ):
                classes[representative] |= 1 << one
                break
        else:
            classes[one] = 1 << one
    return {position: alike for alike in classes.values() for position in positions_of(alike)}
