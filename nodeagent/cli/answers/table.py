"""Text tables and colours for terminals; pure but for asking what the terminal is."""

import argparse
import os
import textwrap
from collections.abc import Mapping, Sequence
from typing import TextIO

from msgspec import Struct

SIMULATION_VARIABLE = "NODEAGENT_SIMULATION"
"""Names a simulation where there are several; `--simulation` is stronger."""
COLOURS = {"good": "32", "bad": "31;1", "warn": "33", "dim": "2", "strong": "1"}
WIDTH_MIN = 40
UNCUT = 10_000
"""As wide as no terminal is."""


def wants_colour(stream: TextIO, environ: Mapping[str, str]) -> bool:
    """Only on a terminal, and never against NO_COLOR."""
    return stream.isatty() and not environ.get("NO_COLOR") and environ.get("TERM") != "dumb"


def read_width(stream: TextIO) -> int:
    """Columns of the terminal; wide where there is none, so that pipes get whole lines."""
    if not stream.isatty():
        return UNCUT
    import shutil  # noqa: PLC0415 - with the archive formats that it knows, which an agent's start would load

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


class Table(Struct, frozen=True):
    """What a command found, by column and row, before anybody knows how wide the terminal is."""

    head: Sequence[str]
    rows: Sequence[Sequence[str]]
    names: Sequence[str] | None = None
    """What `-o name` prints for the rows; the first column where nothing better is known."""
    giving_way: Sequence[str] = ()
    """Columns that a narrow terminal does without, the first first."""
    wide: Sequence[str] = ()
    """Columns that are shown only where they are asked for."""
    nothing: str = ""
    """Said instead of a table without rows."""


class Layout(Struct, frozen=True):
    """How a person wants tables."""

    width: int
    wide: bool = False
    headers: bool = True


def lay_out(table: Table, layout: Layout) -> list[str]:
    """The lines of a table: every column uncut where that was asked for, else what fits."""
    if not table.rows and table.nothing:
        return [table.nothing]
    shown = [at for at, name in enumerate(table.head) if layout.wide or name not in table.wide]
    head, rows = [table.head[at] for at in shown], [[row[at] for at in shown] for row in table.rows]
    if layout.wide:
        lines = render_table(head, rows, width=UNCUT)
    else:
        lines = render_fitting(head, rows, giving_way=table.giving_way, width=layout.width)
    return lines if layout.headers else lines[1:]


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
