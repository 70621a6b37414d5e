"""The tree of the packages in docs/architecture.md: each folder by what it says of itself, with its modules.

Of components, commands and the rooms of large floors only the folders: what is in them is found by looking into one.
"""

import ast
import re
from collections.abc import Iterator
from pathlib import Path
from textwrap import wrap
from typing import Final

from tests.generators.states import fill_states

ROOT: Final = Path(__file__).parents[2]
PAGE: Final = ROOT / "docs" / "architecture.md"
_BLOCK: Final = re.compile(r"(<!-- made: tree -->\n).*?(<!-- end -->)", re.DOTALL)
_ROOMS: Final = ("cli", "components", "core/", "edge/host/", "edge/nvml/")
_WITHOUT_MODULES: Final = (*_ROOMS, "config/imports", "config/sections", "edge/kubelet/proto")
_PACKAGES: Final = ("nodeagent", "nodeagent_sim")
_COLUMN: Final = 24
_WIDTH: Final = 140


def render_architecture() -> str:
    """`docs/architecture.md` with its tree and its table of states made anew."""
    folders = [line for name in _PACKAGES for line in _render_folder(ROOT / name, 0)]
    tree = "\n".join(["```", *folders, "```", ""])
    return fill_states(_BLOCK.sub(lambda found: found[1] + tree + found[2], PAGE.read_text(encoding="utf-8")))


def _render_folder(folder: Path, depth: int) -> Iterator[str]:
    name = f"{'  ' * depth}{folder.name}/"
    lines = [*wrap(_say(folder), _WIDTH - _COLUMN), *wrap(" ".join(_list_modules(folder)), _WIDTH - _COLUMN)]
    for text, margin in zip(lines, [name, *[""] * len(lines)], strict=False):
        yield f"{margin:<{_COLUMN}}{text}"
    for inner in sorted(folder.iterdir()):
        if (inner / "__init__.py").exists():
            yield from _render_folder(inner, depth + 1)


def _say(folder: Path) -> str:
    said = ast.get_docstring(ast.parse((folder / "__init__.py").read_text(encoding="utf-8")))
    assert said, f"{folder.relative_to(ROOT)}/__init__.py must say what the folder is for"
    return said.partition("\n")[0]


def _list_modules(folder: Path) -> list[str]:
    place = folder.relative_to(ROOT).as_posix().removeprefix("nodeagent/")
    if place.startswith(_WITHOUT_MODULES):
        return []
    return sorted(path.stem for path in folder.glob("*.py") if path.stem != "__init__")
