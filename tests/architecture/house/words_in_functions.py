"""The names inside a module, of functions and their parameters: retired words among them are counted, not forbidden."""

import ast
from collections.abc import Iterator
from pathlib import Path

from tests.architecture.house.names import Name, list_sources
from tests.architecture.house.words import RETIRED


def list_functions(package: Path) -> Iterator[Name]:
    for path in list_sources(package):
        place = str(path.relative_to(package.parent))
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef)):
                yield Name(place, node.name)
            elif isinstance(node, ast.arg):
                yield Name(place, node.arg)


def list_retired_in_functions(package: Path) -> list[str]:
    """The names with a retired word, each with its place."""
    retired = {each.word for each in RETIRED}
    return [f"{each.place}: {each.name}" for each in list_functions(package) if each.words & retired]
