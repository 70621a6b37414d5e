"""How many GPUs this node should have: what the configuration says, or else the cluster by a label of the node; pure.

Owns the label. Refuses to guess: a value that is no count counts for nothing, and is told.
"""

from collections.abc import Mapping
from typing import Final

from nodeagent.model.values import Value

LABEL: Final = "nvidia.com/gpu.expected.count"
COUNT_MAX: Final = 1024
"""As for `gpus.expected`."""


class Expectation(Value, frozen=True):
    """The number, and whose word it is."""

    count: int | None = None
    """`None` where nobody says."""
    by: str = ""
    """Who says so, as people name it."""
    problem: str = ""
    """Why the label says nothing although it is there."""


def decide_expectation(configured: int | None, labels: Mapping[str, str]) -> Expectation:
    """The configuration is nearer to the node than the label; a slip in the label is told all the same."""
    text = labels.get(LABEL)
    problem = "" if text is None else _find_problem(text)
    if configured is not None:
        return Expectation(count=configured, by="`gpus.expected`", problem=problem)
    if text is None or problem:
        return Expectation(problem=problem)
    return Expectation(count=int(text), by=f"the node label {LABEL}")


def _find_problem(text: str) -> str:
    # A label value has at most 63 characters, and Unicode has digits that `int` takes and nobody means.
    if text.isascii() and text.isdigit() and int(text) <= COUNT_MAX:
        return ""
    return f"the node label {LABEL} is {text!r}, not a number from 0 to {COUNT_MAX}: it is not followed"
