"""What a seed tells: the steps of its story, one by one, each with a chance of its own.

Pure, and blind to what becomes of the steps: however the processes of a machine take turns, a seed draws the same
kinds, sizes and pauses again. So a step's number is enough to find it in another run of the same story.
"""

from collections.abc import Iterator, Mapping
from random import Random
from typing import TypeVar

Kind = TypeVar("Kind")


def plan_story(seed: int, steps: int, weights: Mapping[Kind, int]) -> Iterator[tuple[Kind, Random]]:
    """So many steps, drawn by weight."""
    for number in range(steps):
        chance = Random(f"{seed}/{number}")
        yield chance.choices(list(weights), list(weights.values()))[0], chance
