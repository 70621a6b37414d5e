"""What a good group of GPUs is: the words that both searches share.

A request wants `size` of the available GPUs. The available ones are cut into groups of that size, with one smaller
group of what is left over, and a cut is worth the sum of its groups' pair scores. The best group belongs to the best
cut, so that what is left over also fits well, as in the reference.
Where the reference takes the first one found, here the group with the highest score of its own wins, then the one
least connected to the GPUs left over, then the one with the lowest positions: the order of ids makes no difference.

Sets of GPUs are bit masks over positions: the lowest bit is position 0.
"""

from collections.abc import Sequence
from typing import NamedTuple

from nodeagent.model.values import Value

Scores = Sequence[Sequence[int]]


class Request(Value, frozen=True):
    """What is asked of a search; `required` lies within `available`, and `size` between their counts."""

    available: int
    required: int
    size: int
    forbidden: int = 0
    """Available for the rest of the cut, but not for the group; never one of `required`."""

    @property
    def remainder(self) -> int:
        """How many GPUs are in the one group that is smaller; none when all groups are whole."""
        return self.available.bit_count() % self.size


class Choice(NamedTuple):
    """A group and what it is worth; compared from left to right, more is better, then lower positions."""

    total: int
    """Score of the best cut that contains this group: the sum over all its groups."""
    own: int
    """Score of this group alone."""
    loss: int
    """What its connections to the GPUs left over add up to, negative: a group that nobody misses is better."""
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
