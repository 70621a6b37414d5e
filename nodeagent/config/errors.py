"""The errors of the configuration.

    ConfigurationInvalid     the files, the environment and the flags together do not make valid settings

A single error, because there is a single reaction: show every problem and keep the settings in force, or exit 2 at
start.
"""

from collections.abc import Iterable
from typing import Final

from msgspec import Struct

from nodeagent.config.tree import Origin


class Problem(Struct, frozen=True):
    """One problem: the origin of the value, the path of the setting, and a message with the remedy."""

    origin: Origin
    path: str
    message: str

    def __str__(self) -> str:
        place = f"{self.path}: " if self.path else ""
        return _one_line(f"{self.origin}: {place}{self.message}")


def _one_line(text: str, limit: int = 2000) -> str:
    """The text without line breaks and control characters of terminals: keys and names come from outside."""
    shown = "".join(letter if letter.isprintable() else ascii(letter)[1:-1] for letter in text)
    return shown if len(shown) <= limit else f"{shown[: limit - 1]}…"


TOLD_MAX: Final = 50
_LAYERS: Final = ("default", "file", "environment", "flag")


def _reading_order(problem: Problem) -> tuple[int, str, int]:
    """The order of the sources for a reader."""
    return _LAYERS.index(problem.origin.layer), problem.origin.name, problem.origin.line


class ConfigurationInvalid(Exception):  # named for the situation, like all errors of the agent
    """The configuration cannot be used; `problems` holds the reasons, up to a readable number."""

    def __init__(self, problems: Iterable[Problem]) -> None:
        ordered = sorted(problems, key=_reading_order)
        told, more = ordered[:TOLD_MAX], len(ordered) - TOLD_MAX
        if more > 0:
            # A foreign file has thousands of problems, which each surface would carry.
            told.append(Problem(ordered[TOLD_MAX].origin, "", f"and {more} more problems; mend those above first"))
        self.problems = tuple(told)
        super().__init__("\n".join(map(str, self.problems)))
