"""Reads a Dockerfile as far as ours goes; pure. An instruction that is not known is an error, never passed over."""

import re
import shlex
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Final

_SIMPLE: Final = frozenset({"USER", "ENTRYPOINT", "CMD"})


class NotUnderstood(Exception):
    """The Dockerfile uses something that the test builder does not know."""

    def __init__(self, line: str) -> None:
        super().__init__(f"not understood in the Dockerfile: {line}")


@dataclass(frozen=True, slots=True)
class Step:
    """One RUN or COPY."""

    kind: str
    text: str
    """The command of a RUN; sources and target of a COPY."""
    source: str = ""
    """The stage that a COPY takes from; empty means the build context."""


@dataclass(slots=True)
class Stage:
    """From one FROM to the next."""

    base: str
    name: str
    steps: list[Step] = field(default_factory=list)
    environment: dict[str, str] = field(default_factory=dict)
    settings: dict[str, str] = field(default_factory=dict)
    """USER, ENTRYPOINT, CMD as written."""


def parse_dockerfile(text: str) -> list[Stage]:
    """The stages, in their order, with the defaults of all arguments put in."""
    arguments: dict[str, str] = {}
    stages: list[Stage] = []
    for line in join_lines(text):
        word, _, rest = line.partition(" ")
        rest = rest.strip()
        if word == "ARG":
            name, _, value = rest.partition("=")
            arguments[name] = value
        elif word == "FROM":
            base, _, name = _fill(rest, arguments).partition(" AS ")
            stages.append(Stage(base, name))
        elif word == "ENV":
            stages[-1].environment |= dict(part.split("=", 1) for part in shlex.split(rest))
        elif word == "COPY":
            found = re.match(r"--from=(\S+) +(.*)", rest)
            stages[-1].steps.append(Step("COPY", *((found[2], found[1]) if found else (rest, ""))))
        elif word == "RUN":
            stages[-1].steps.append(Step("RUN", rest))
        elif word in _SIMPLE:
            stages[-1].settings[word] = rest
        else:
            raise NotUnderstood(line)
    return stages


def join_lines(text: str) -> Iterator[str]:
    """Instructions, one a line, without comments."""
    kept = "\n".join(line for line in text.splitlines() if not line.lstrip().startswith("#"))
    return (line.strip() for line in re.sub(r"\\\n\s*", "", kept).splitlines() if line.strip())


def _fill(text: str, arguments: dict[str, str]) -> str:
    return re.sub(r"\$\{(\w+)\}", lambda found: arguments[found[1]], text)
