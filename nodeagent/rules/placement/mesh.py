"""The best group where links make an irregular mesh, as on boards with direct wires between GPUs.

Owns an exact search for any scores: the best cut of each remaining set is computed once and remembered, and a bound
drops hopeless cuts. The cost grows quickly with the number of GPUs: meant for up to `MESH_MAX`.

Refuses devices, ids and settings: the search knows positions and scores.
"""

from collections.abc import Iterator

from nodeagent.rules.placement.grouping import (
    Choice,
    Request,
    Scores,
    positions_of,
    score_between,
    score_within,
)

MESH_MAX = 10
"""Irregular meshes of more GPUs are not built; at random scores ten take some milliseconds, twelve up to a hundred."""


def choose_in_mesh(scores: Scores, request: Request) -> Choice:
    """The best group for a request, by any scores."""
    return _Search(scores, request).choose()


class _Search:
    """The search of a request, with the remembered cuts."""

    def __init__(self, scores: Scores, request: Request) -> None:
        self._scores, self._request, self._size = scores, request, request.size
        members = positions_of(request.available)
        # Twice the most that a GPU can add to any group, so that a bound is a sum of integers.
        self._reach = {
            one: sum(sorted((scores[one][other] for other in members if other != one), reverse=True)[: self._size - 1])
            for one in members
        }
        self._best_cut: dict[int, int] = {}

    def choose(self) -> Choice:
        """The best of all possible groups."""
        options = sorted(self._options(), reverse=True)
        best = Choice(-1, 0, 0, 0)
        for bound, own, loss, group in options:
            if (bound, own, loss) < (2 * best.total, best.own, best.loss):
                break
            choice = Choice(own + self._cut(self._request.available ^ group), own, loss, group)
            best = max(best, choice, key=lambda choice: choice.order)
        return best

    def _options(self) -> Iterator[tuple[int, int, int, int]]:
        """Every possible group: twice the bound on the cut, score, loss, and mask."""
        request = self._request
        required = positions_of(request.required)
        free = request.available & ~request.required & ~request.forbidden
        everywhere = self._bound(request.available)
        score = score_within(self._scores, request.required)
        for group, own in self._extend(required, request.required, score, free, self._size - len(required)):
            loss = -score_between(self._scores, group, request.available ^ group)
            yield everywhere - self._bound(group) + 2 * own, own, loss, group

    def _cut(self, mask: int) -> int:
        """Score of the best cut of the set."""
        known = self._best_cut.get(mask)
        if known is None:
            known = self._best_cut[mask] = self._compute_cut(mask)
        return known

    def _compute_cut(self, mask: int) -> int:
        if mask.bit_count() <= self._size:
            return score_within(self._scores, mask)
        # Exactly one group of a cut has the lowest GPU in it: a whole one, or the remainder if there is one.
        first = mask & -mask
        members = (first.bit_length() - 1,)
        everywhere = self._bound(mask)
        options = sorted(
            (
                (everywhere - self._bound(group) + 2 * own, own, group)
                for size in {self._size, mask.bit_count() % self._size} - {0}
                for group, own in self._extend(members, first, 0, mask ^ first, size - 1)
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
        self, members: tuple[int, ...], group: int, score: int, free: int, missing: int
    ) -> Iterator[tuple[int, int]]:
        """Every group made by adding `missing` of the free GPUs to the members, with the group's score."""
        if missing == 0:
            yield group, score
            return
        while free.bit_count() >= missing:
            bit = free & -free
            free ^= bit
            position = bit.bit_length() - 1
            row = self._scores[position]
            added = sum([row[member] for member in members])
            yield from self._extend((*members, position), group | bit, score + added, free, missing - 1)

    def _bound(self, mask: int) -> int:
        return sum([self._reach[position] for position in positions_of(mask)])
