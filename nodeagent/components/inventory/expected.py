"""How many GPUs the node should have, by the configuration or else by a label of the node; pure.

Owns the label. Refuses to guess: a value that is no count is ignored and reported. While the API server is away, the
last number of the label holds.
"""

from collections.abc import Mapping
from typing import Final

from nodeagent.model.nvidia import DOMAIN
from nodeagent.model.values import Value

LABEL: Final = f"{DOMAIN}/gpu.expected.count"
COUNT_MAX: Final = 1024
"""As for `gpus.expected`."""


class Expectation(Value, frozen=True):
    """The expected number, and the source of the number."""

    count: int | None = None
    """`None` where nobody says."""
    by: str = ""
    """Who says so, as people name it."""
    problem: str = ""
    """Why the label says nothing although it is there."""
    by_label: int | None = None
    """What the label says, whether it counts or not: to be remembered."""


def decide_expectation(
    configured: int | None, labels: Mapping[str, str] | None, remembered: int | None = None
) -> Expectation:
    """The expected number: the configuration goes before the label; a malformed label is reported in both cases.

    `labels` is `None` before the API server has sent the node; until then `remembered`, the label's last number, holds.
    """
    text = labels.get(LABEL) if labels is not None else None
    problem = "" if text is None else _find_problem(text)
    by_label = remembered if labels is None else None if text is None or problem else int(text)
    if configured is not None:
        return Expectation(count=configured, by="`gpus.expected`", problem=problem, by_label=by_label)
    if by_label is None:
        return Expectation(problem=problem)
    when = " as it was last seen" if labels is None else ""
    return Expectation(count=by_label, by=f"the node label {LABEL}{when}", by_label=by_label)


def _find_problem(text: str) -> str:
    # A label value has at most 63 characters, and Unicode has digits that `int` takes and nobody means.
    if text.isascii() and text.isdigit() and int(text) <= COUNT_MAX:
        return ""
    return f"the node label {LABEL} is {text!r}, not a number from 0 to {COUNT_MAX}: it is not followed"
