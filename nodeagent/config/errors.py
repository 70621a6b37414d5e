"""The errors of the configuration.

    ConfigurationInvalid     the files, the environment and the flags together do not make valid settings

There is one error because there is one thing to do about it: show every problem and keep what is in force, or exit 2
at start.
"""

from collections.abc import Iterable
from typing import Final

from msgspec import Struct

from nodeagent.config.tree import Origin


class Problem(Struct, frozen=True):
    """One complaint: where it was written, which setting it concerns, what is wrong and what to do."""

    origin: Origin
    path: str
    message: str

    def __str__(self) -> str:
        place = f"{self.path}: " if self.path else ""
        return _one_line(f"{self.origin}: {place}{self.message}")


def _one_line(text: str, limit: int = 2000) -> str:
    """The text without anything that could break a line or drive a terminal: keys and names come from outside."""
    shown = "".join(letter if letter.isprintable() else ascii(letter)[1:-1] for letter in text)
    return shown if len(shown) <= limit else f"{shown[: limit - 1]}…"


TOLD_MAX: Final = 50
_LAYERS: Final = ("default", "file", "environment", "flag")


def _reading_order(problem: Problem) -> tuple[int, str, int]:
    """The order in which a person goes through the sources."""
    return _LAYERS.index(problem.origin.layer), problem.origin.name, problem.origin.line


class ConfigurationInvalid(Exception):  # named for the situation, as all our errors are
    """The configuration cannot be used; `problems` holds every reason, up to as many as a person reads."""

    def __init__(self, problems: Iterable[Problem]) -> None:
        ordered = sorted(problems, key=_reading_order)
        told, more = ordered[:TOLD_MAX], len(ordered) - TOLD_MAX
        if more > 0:
            # A file that is no configuration of this agent has thousands; each surface would carry all of them.
            told.append(Problem(ordered[TOLD_MAX].origin, "", f"and {more} more problems; mend those above first"))
        self.problems = tuple(told)
        super().__init__("\n".join(map(str, self.problems)))
