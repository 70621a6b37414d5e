"""How big pods really are: what pods of a large cluster ask of GPUs, by how many ask for it.

From Alibaba's published lists of pods, cluster-trace-gpu-v2023 ("openb"), in hundredths of a GPU: one list as it was,
one with more pods that want several GPUs, one with more that want a part, and one in which all of them do.
"""

from collections.abc import Mapping
from itertools import accumulate
from random import Random
from typing import Final

_ASKED: Final[tuple[tuple[int, int, int, int, int], ...]] = (
    (100, 3911, 3911, 3001, 0),
    (200, 16, 222, 12, 0),
    (400, 15, 206, 11, 0),
    (800, 44, 556, 39, 0),
    (81, 1078, 1078, 1393, 2436),
    (47, 750, 750, 952, 1723),
    (32, 328, 328, 414, 800),
    (65, 253, 253, 361, 572),
    (23, 140, 140, 163, 337),
    (22, 62, 62, 79, 141),
    (46, 128, 128, 177, 304),
    (48, 19, 19, 20, 40),
    (44, 2, 2, 2, 3),
    (59, 75, 75, 113, 180),
    (55, 72, 72, 101, 143),
    (16, 74, 74, 96, 154),
    (14, 1, 1, 0, 1),
    (11, 24, 24, 30, 58),
    (5, 7, 7, 18, 14),
    (37, 47, 47, 52, 111),
    (35, 6, 6, 12, 19),
    (33, 7, 7, 7, 16),
    (29, 1, 1, 4, 3),
    (27, 4, 4, 7, 9),
)
"""Hundredths, and how many pods ask for so many in each list; pods that ask for nothing are left out."""
_NAMES: Final = ("default", "multigpu50", "gpushare40", "gpushare100")


class Sizes:
    """One list: drawn from as often as pods come."""

    def __init__(self, counts: Mapping[int, int]) -> None:
        self.counts = {size: count for size, count in counts.items() if count}
        self._sizes = tuple(self.counts)
        self._sums = tuple(accumulate(self.counts.values()))

    @property
    def mean(self) -> float:
        """Hundredths that a pod asks for on average."""
        return sum(size * count for size, count in self.counts.items()) / self._sums[-1]

    def draw(self, chance: Random) -> int:
        """What the next pod asks for."""
        return chance.choices(self._sizes, cum_weights=self._sums)[0]


LISTS: Final[Mapping[str, Sizes]] = {
    name: Sizes({size: counts[place] for size, *counts in _ASKED}) for place, name in enumerate(_NAMES)
}
