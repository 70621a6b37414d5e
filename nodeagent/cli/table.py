"""Text tables and colours for terminals; pure but for asking what the terminal is."""

import argparse
import os
import shutil
import textwrap
from collections.abc import Mapping, Sequence
from typing import TextIO

SIMULATION_VARIABLE = "NODEAGENT_SIMULATION"
"""Names a simulation where there are several; `--simulation` is stronger."""
COLOURS = {"good": "32", "bad": "31;1", "warn": "33", "dim": "2", "strong": "1"}
WIDTH_MIN = 40


def wants_colour(stream: TextIO, environ: Mapping[str, str]) -> bool:
    """Only on a terminal, and never against NO_COLOR."""
    return stream.isatty() and not environ.get("NO_COLOR") and environ.get("TERM") != "dumb"


def read_width(stream: TextIO) -> int:
    """Columns of the terminal; wide where there is none, so that pipes get whole lines."""
    if not stream.isatty():
        return 10_000
    return max(WIDTH_MIN, shutil.get_terminal_size((100, 24)).columns)


def paint(text: str, style: str, *, colour: bool) -> str:
    """The text in a style, or as it is."""
    return f"\x1b[{COLOURS[style]}m{text}\x1b[0m" if colour and style else text


def clean(text: str) -> str:
    """Text from outside with nothing in it that a terminal would obey."""
    return "".join(character if character.isprintable() else "�" for character in text)


def shorten(text: str, width: int) -> str:
    """At most `width` characters, with a sign that something is missing."""
    return text if len(text) <= width else text[: max(0, width - 1)] + "…"


def render_table(head: Sequence[str], rows: Sequence[Sequence[str]], *, width: int) -> list[str]:
    """Columns as wide as they must be; the last one gives way where the terminal is narrow."""
    cells = [[clean(cell) for cell in row] for row in (head, *rows)]
    widths = [max(len(row[column]) for row in cells) for column in range(len(head))]
    lines = []
    for row in cells:
        fixed = "  ".join(f"{cell:<{size}}" for cell, size in zip(row[:-1], widths, strict=False))
        line = f"{fixed}  {row[-1]}" if fixed else row[-1]
        lines.append(shorten(line.rstrip(), width))
    return lines


LAST_WIDTH = 16
"""What the last column keeps, however narrow the terminal."""


def render_fitting(
    head: Sequence[str], rows: Sequence[Sequence[str]], *, giving_way: Sequence[str], width: int
) -> list[str]:
    """A table that leaves columns out where the terminal is narrow, in this order; the last column always stays."""
    shown = list(range(len(head)))
    for name in giving_way:
        fixed = [max(len(clean(row[column])) for row in (head, *rows)) + 2 for column in shown[:-1]]
        if sum(fixed) + LAST_WIDTH <= width:
            break
        shown.remove(head.index(name))
    return render_table([head[at] for at in shown], [[row[at] for at in shown] for row in rows], width=width)


def wrap(text: str, width: int, *, indent: int = 0, first: str = "") -> list[str]:
    """Text from outside on as many lines as it needs, never cut: a remedy that is cut is none."""
    return textwrap.wrap(
        clean(text), max(20, width), initial_indent=first or " " * indent, subsequent_indent=" " * indent
    ) or [first]


def read_environment(arguments: argparse.Namespace | None = None) -> Mapping[str, str]:
    """The environment, in one place, so that commands can be tested with another; what flags say is in it too."""
    simulation = getattr(arguments, "simulation", None)
    return {**os.environ, SIMULATION_VARIABLE: simulation} if simulation else os.environ
