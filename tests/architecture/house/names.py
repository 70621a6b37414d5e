"""The names that a reader meets first: of folders, modules and classes, each as the words that it is made of."""

import ast
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Final, NamedTuple

PACKAGES: Final = ("nodeagent", "nodeagent_sim")
"""Folders of a checkout: the agent, and the simulator."""
_WORD: Final = re.compile(r"[A-Z]?[a-z]+|[A-Z]+(?![a-z])|[0-9]+")
_GENERATED: Final = re.compile(r"_(pb2|grpc)\.py$")


class Name(NamedTuple):
    """A name and the file or folder that it is given in."""

    place: str
    name: str

    @property
    def words(self) -> frozenset[str]:
        return frozenset(word.lower() for word in _WORD.findall(self.name))


def list_sources(package: Path) -> list[Path]:
    """The modules of a package but for those that are generated from `.proto` files."""
    return [path for path in sorted(package.rglob("*.py")) if not _GENERATED.search(path.name)]


def list_names(package: Path) -> Iterator[Name]:
    """The names of folders, modules and classes of a package."""
    folders: set[Path] = set()
    for path in list_sources(package):
        place = str(path.relative_to(package.parent))
        if path.parent != package and path.parent not in folders:
            folders.add(path.parent)
            yield Name(str(path.parent.relative_to(package.parent)), path.parent.name)
        if path.stem.strip("_") not in ("init", "main"):
            yield Name(place, path.stem)
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if isinstance(node, ast.ClassDef):
                yield Name(place, node.name)
