"""How many examples a law is tried with: all of them by night, a quarter for every change."""

from typing import Final

from hypothesis import settings

ALL: Final = 100
FEWEST: Final = 10


def examples(count: int) -> int:
    """So many, or the share of them that the profile in force stands for."""
    return max(FEWEST, count * settings().max_examples // ALL)
