"""Text tables and colours for terminals; pure but for questions to the terminal."""

import argparse
import os
import shutil
import textwrap
from collections.abc import Mapping, Sequence
from typing import TextIO

from msgspec import Struct

SIMULATION_VARIABLE = "NODEAGENT_SIMULATION"
"""Names a simulation where there are several; `--simulation` is stronger."""
COLOURS = {"good": "32", "bad": "31;1", "warn": "33", "dim": "2", "strong": "1"}
WIDTH_MIN = 40
UNCUT = 10_000
"""Wider than any terminal."""


def wants_colour(stream: TextIO, environ: Mapping[str, str]) -> bool:
    """Only on a terminal, and never against NO_COLOR."""
    return stream.isatty() and not environ.get("NO_COLOR") and environ.get("TERM") != "dumb"


def read_width(stream: TextIO) -> int:
    """Columns of the terminal; wide without a terminal, so that pipes get whole lines."""
    if not stream.isatty():
        return UNCUT
    return max(WIDTH_MIN, shutil.get_terminal_size((100, 24)).columns)


def paint(text: str, style: str, *, colour: bool) -> str:
    """The text in a style, or unchanged."""
    return f"\x1b[{COLOURS[style]}m{text}\x1b[0m" if colour and style else text


def clean(text: str) -> str:
    """Text from outside without control characters for the terminal."""
    return "".join(character if character.isprintable() else "�" for character in text)


def shorten(text: str, width: int) -> str:
    """At most `width` characters, with a sign for the missing rest."""
    return text if len(text) <= width else text[: max(0, width - 1)] + "…"


def render_table(head: Sequence[str], rows: Sequence[Sequence[str]], *, width: int) -> list[str]:
    """Columns as wide as necessary; the last column is cut on a narrow terminal."""
    cells = [[clean(cell) for cell in row] for row in (head, *rows)]
    widths = [max(len(row[column]) for row in cells) for column in range(len(head))]
    lines = []
    for row in cells:
        fixed = "  ".join(f"{cell:<{size}}" for cell, size in zip(row[:-1], widths, strict=False))
        line = f"{fixed}  {row[-1]}" if fixed else row[-1]
        lines.append(shorten(line.rstrip(), width))
    return lines


class Table(Struct, frozen=True):
    """The result of a command, by column and row, independent of the terminal's width."""

    head: Sequence[str]
    rows: Sequence[Sequence[str]]
    names: Sequence[str] | None = None
    """The names of the rows for `-o name`; the first column by default."""
    giving_way: Sequence[str] = ()
    """Columns left out on a narrow terminal, the first first."""
    wide: Sequence[str] = ()
    """Columns shown only on request."""
    nothing: str = ""
    """Said instead of a table without rows."""


class Layout(Struct, frozen=True):
    """The wanted layout of tables."""

    width: int
    wide: bool = False
    headers: bool = True


def lay_out(table: Table, layout: Layout) -> list[str]:
    """The lines of a table: with `wide` every column uncut, else the fitting columns."""
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
"""The least width of the last column, however narrow the terminal."""


def render_fitting(
    head: Sequence[str], rows: Sequence[Sequence[str]], *, giving_way: Sequence[str], width: int
) -> list[str]:
    """A table without the first columns of `giving_way` on a narrow terminal; the last column always stays."""
    shown = list(range(len(head)))
    for name in giving_way:
        fixed = [max(len(clean(row[column])) for row in (head, *rows)) + 2 for column in shown[:-1]]
        if sum(fixed) + LAST_WIDTH <= width:
            break
        shown.remove(head.index(name))
    return render_table([head[at] for at in shown], [[row[at] for at in shown] for row in rows], width=width)


def wrap(text: str, width: int, *, indent: int = 0, first: str = "") -> list[str]:
    """Text from outside on as many lines as necessary, never cut: a cut remedy is useless."""
    return textwrap.wrap(
        clean(text), max(20, width), initial_indent=first or " " * indent, subsequent_indent=" " * indent
    ) or [first]


def read_environment(arguments: argparse.Namespace | None = None) -> Mapping[str, str]:
    """The environment, in one place for tests, with the values of flags."""
    simulation = getattr(arguments, "simulation", None)
    return {**os.environ, SIMULATION_VARIABLE: simulation} if simulation else os.environ
