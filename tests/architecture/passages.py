"""Passages that stand in two places: the same lines one after the other, whatever is between them that says nothing."""

import ast
import re
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Final, NamedTuple

LENGTH: Final = 6
_CLOSING: Final = re.compile(r"[\s()\[\]{},:\"']*")


class Line(NamedTuple):
    """One that says something: where it stands, and what it says without its indentation."""

    place: str
    number: int
    text: str


def read_lines(place: str, source: str) -> list[Line]:
    """In their order all but imports, docstrings, comments, blank lines, closing brackets and parameters.

    What a part is built of is declared by each for itself, so the parameters of a function are no passage.
    """
    passed_over = {number for node in ast.walk(ast.parse(source)) for number in _list_passed_over(node)}
    return [
        Line(place, number, text)
        for number, line in enumerate(source.splitlines(), start=1)
        if number not in passed_over and not (text := line.strip()).startswith("#") and not _CLOSING.fullmatch(text)
    ]


def find_shared(rooms: Mapping[str, Iterable[list[Line]]]) -> dict[str, tuple[Line, ...]]:
    """By its text the beginnings of each passage that stands in more than one room."""
    seen: dict[str, dict[str, Line]] = {}
    for room, files in rooms.items():
        for lines in files:
            for start in range(len(lines) - LENGTH + 1):
                passage = "\n".join(line.text for line in lines[start : start + LENGTH])
                seen.setdefault(passage, {}).setdefault(room, lines[start])
    return {passage: tuple(places.values()) for passage, places in seen.items() if len(places) > 1}


def read_rooms(root: Path) -> dict[str, list[list[Line]]]:
    """The lines of each file, by the folder of `root` that it is in."""
    return {
        folder.name: [
            read_lines(str(path.relative_to(root)), path.read_text(encoding="utf-8"))
            for path in sorted(folder.rglob("*.py"))
        ]
        for folder in sorted(root.iterdir())
        if folder.is_dir() and folder.name != "__pycache__"
    }


def _list_passed_over(node: ast.AST) -> range:
    if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
        return range(node.lineno + 1, node.body[0].lineno)
    is_import = isinstance(node, ast.Import | ast.ImportFrom)
    is_said = isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant) and isinstance(node.value.value, str)
    if (is_import or is_said) and isinstance(node, ast.stmt) and node.end_lineno is not None:
        return range(node.lineno, node.end_lineno + 1)
    return range(0)
