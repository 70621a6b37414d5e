"""The recipes of docs/development/recipes.md, as a program follows them: edits and commands, in their order.

A fenced block whose first line names a file is an edit; a block without a language is commands, one a line.
"""

import os
import re
import shlex
import shutil
import subprocess
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Final

from msgspec import Struct

ROOT: Final = Path(__file__).parents[2]
PAGE: Final = ROOT / "docs" / "development" / "recipes.md"
_FENCE: Final = re.compile(r"^```(\w*)\n(.*?)^```\n", re.MULTILINE | re.DOTALL)
_HEAD: Final = re.compile(r"(?:#|<!--) (?P<file>\S+), (?:new|(?P<how>after|in place of) `(?P<anchor>.+)`)(?: -->)?")
_NOT_COPIED: Final = shutil.ignore_patterns(".*", "build", "built", "dist", "results")
_PROGRAMS: Final[Mapping[str, tuple[str, ...]]] = {
    "make generate": ("-m", "tests.generate"),
    "pytest": ("-m", "pytest", "-q", "-p", "no:cacheprovider", "-p", "no:xdist"),
    "mypy": ("-m", "mypy"),
}
"""What stands behind the first words of a command, without the virtual environment that `make` would look for."""
_FAILS: Final = re.compile(r"\s+# fails: .+")


class Edit(Struct, frozen=True):
    """Lines that come into a file."""

    file: str
    text: str
    anchor: str | None
    """The line, without its indentation, that the lines come after or replace; `None` for a new file."""
    replaces: bool = False

    def apply(self, tree: Path) -> None:
        """Write the lines into the file of that tree.

        Raises:
            LookupError: The file has no such line, or several.
        """
        place = tree / self.file
        if self.anchor is None:
            if place.exists():
                raise LookupError(f"{self.file} is there already")
            place.write_text(self.text, encoding="utf-8")
            return
        lines = place.read_text(encoding="utf-8").splitlines(keepends=True)
        found = [number for number, line in enumerate(lines) if line.strip() == self.anchor]
        if len(found) != 1:
            raise LookupError(f"{self.file} has {len(found)} lines `{self.anchor}`")
        lines[found[0] + (not self.replaces) : found[0] + 1] = [self.text]
        place.write_text("".join(lines), encoding="utf-8")


class Call(Struct, frozen=True):
    """A command, and whether the page says that it fails at this place."""

    words: tuple[str, ...]
    environ: dict[str, str]
    fails: bool

    def run(self, tree: Path) -> subprocess.CompletedProcess[str]:
        """Run the command in a tree, on the tree's own modules."""
        environ = {name: value for name, value in os.environ.items() if not name.startswith(("COV", "PYTEST"))}
        return subprocess.run(
            [sys.executable, *self.words],
            cwd=tree,
            env=environ | self.environ | {"PYTHONPATH": str(tree)},
            capture_output=True,
            text=True,
            check=False,
        )


class Recipe(Struct, frozen=True):
    """A section of the page: its steps, and the lines that a person reads beside them."""

    title: str
    steps: tuple[Edit | Call, ...]
    prose: tuple[str, ...]

    @property
    def edits(self) -> tuple[Edit, ...]:
        return tuple(step for step in self.steps if isinstance(step, Edit))


def read_recipes(text: str) -> tuple[Recipe, ...]:
    """The recipes of a page, a section each."""
    sections = re.split(r"^## ", text, flags=re.MULTILINE)[1:]
    return tuple(_read_recipe(*section.split("\n", 1)) for section in sections)


def _read_recipe(title: str, body: str) -> Recipe:
    steps = tuple(step for language, block in _FENCE.findall(body) for step in _read_block(language, block))
    prose = tuple(line for line in _FENCE.sub("", body).splitlines() if line.strip())
    return Recipe(title, steps, prose)


def _read_block(language: str, block: str) -> Iterator[Edit | Call]:
    if not language:
        yield from map(_read_call, block.splitlines())
        return
    first, _, rest = block.partition("\n")
    head = _HEAD.fullmatch(first)
    if head is None:
        raise LookupError(f"a block begins with the file that it changes, not with {first!r}")
    yield Edit(head["file"], rest, head["anchor"], replaces=head["how"] == "in place of")


def _read_call(line: str) -> Call:
    command = _FAILS.sub("", line)
    *assigned, words = re.split(r"(?<==\w) ", command)
    program = next((each for each in _PROGRAMS if f"{words} ".startswith(f"{each} ")), None)
    if program is None:
        raise LookupError(f"no recipe runs {command!r}")
    arguments = shlex.split(words.removeprefix(program))
    environ = dict(each.split("=", 1) for each in assigned)
    return Call((*_PROGRAMS[program], *arguments), environ, fails=command != line)


def copy_tree(into: Path) -> None:
    """The checkout without what is built, with what Python has compiled."""
    shutil.copytree(ROOT, into, ignore=_NOT_COPIED, symlinks=True, dirs_exist_ok=True)
