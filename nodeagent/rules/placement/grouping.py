"""The quality of a group of GPUs: the words shared by both searches.

A request wants `size` of the available GPUs. The available GPUs are cut into groups of the same size, with one smaller
group of left-overs, and a cut is worth the sum of the groups' pair scores. The best group belongs to the best
cut, so that the left-overs also fit well, as in the reference.

Where the reference takes the first group found, here the group with the highest score of its own wins, then the group
least connected to the GPUs left over, then the lowest positions: the order of ids makes no difference.
Sets of GPUs are bit masks over positions: the lowest bit is position 0.
"""

from collections.abc import Sequence
from typing import NamedTuple

from nodeagent.model.values import Value

Scores = Sequence[Sequence[int]]


class Request(Value, frozen=True):
    """The question to a search; `required` lies within `available`, and `size` between their counts."""

    available: int
    required: int
    size: int
    forbidden: int = 0
    """Available for the rest of the cut, but not for the group; never one of `required`."""

    @property
    def remainder(self) -> int:
        """The number of GPUs in the smaller group; zero when all groups are whole."""
        return self.available.bit_count() % self.size


class Choice(NamedTuple):
    """A group and its worth; compared from left to right, more is better, then lower positions."""

    total: int
    """Score of the best cut with this group: the sum over all groups of the cut."""
    own: int
    """Score of this group alone."""
    loss: int
    """The negative sum of the group's connections to the GPUs left over: less connected is better."""
    group: int

    @property
    def order(self) -> tuple[int, int, int, tuple[int, ...]]:
        """The greater, the better."""
        return *self[:3], tuple(-position for position in positions_of(self.group))


def positions_of(mask: int) -> tuple[int, ...]:
    """The positions in a set, ascending."""
    return tuple([position for position in range(mask.bit_length()) if mask >> position & 1])


def mask_of(positions: Sequence[int]) -> int:
    """The inverse of `positions_of`, in any order."""
    return sum(1 << position for position in set(positions))


def score_within(scores: Scores, group: int) -> int:
    """The sum over all pairs of a set."""
    members = positions_of(group)
    return sum(scores[one][other] for one in members for other in members if one < other)


def score_between(scores: Scores, group: int, others: int) -> int:
    """The sum over all pairs from one set to another."""
    return sum(scores[one][other] for one in positions_of(group) for other in positions_of(others))
