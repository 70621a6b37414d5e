"""The files of the layers without a neighbour that say NVIDIA or NVML, though they mean a GPU or its driver.

What is NVIDIA's stands in a module that says so by its name, or in a file of `OWN`. Elsewhere such a name may only be
quoted: in backticks, in a sentence. An import from a module that says so is no mention, but the way round it.
"""

import ast
import io
import re
import tokenize
from collections.abc import Iterator
from pathlib import Path
from typing import Final, NamedTuple

from tests.architecture.house.names import list_sources

LAYERS: Final = ("components", "rules", "model")
SAYS_SO: Final = frozenset("nvidia nvml dcgm nvlink mig mps xid xids sxids".split())  # noqa: SIM905
_MENTION: Final = re.compile(r"nvidia|nvml", re.IGNORECASE)
# Since Python 3.12 the text of an f-string is a token of its own kind.
_TOLD: Final = (tokenize.NAME, tokenize.STRING, tokenize.COMMENT, getattr(tokenize, "FSTRING_MIDDLE", tokenize.STRING))
_QUOTED: Final = re.compile(r"`[^`\n]*`")


class Own(NamedTuple):
    """A file, or a folder with its last slash, about a thing of NVIDIA's that its name does not tell, and the thing."""

    place: str
    thing: str


OWN: Final = (
    Own("components/cdi/capabilities.py", "file names of the driver, by capability"),
    Own("components/cdi/plan_mounts.py", "file names of the driver, and the toolkit's variable for its libraries"),
    Own("components/exporter/catalogue/", "fields by DCGM's names, and why some have no reading of NVML"),
    Own("components/exporter/families/", "metrics that users have under names with NVML and the operator's"),
    Own("components/exporter/fields/", "fields by DCGM's names and NVML's readings"),
    Own("components/inventory/component.py", "codes of conditions that users have"),
    Own("components/signals/node_conditions.py", "reasons of node conditions by the names of EKS's monitoring agent"),
    Own("model/conditions/", "codes of conditions, and remedies by the names of the driver's files and labels"),
    Own("model/driver.py", "a key in JSON that users have"),
    Own("model/repairers.py", "labels and taints of NVSentinel's"),
    Own("rules/proof/floors.py", "floors by the product names of GPUs"),
)


class Mention(NamedTuple):
    """A word of NVIDIA's, and its line."""

    place: str
    line: int
    text: str


def says_so(place: Path) -> bool:
    """Whether the name of a module, or of a folder around it, is the name of a thing of NVIDIA's."""
    return any(SAYS_SO & set(part.split("_")) for part in place.with_suffix("").parts)


def find_mentions(package: Path) -> Iterator[Mention]:
    """Every mention in the layers, those in the files of `OWN` among them."""
    for layer in LAYERS:
        for path in list_sources(package / layer) if (package / layer).is_dir() else ():
            place = path.relative_to(package)
            if not says_so(place):
                yield from _list_mentions(str(place), path.read_text(encoding="utf-8"))


def find_unowned(package: Path) -> list[Mention]:
    """The mentions in files of which nothing says that they are NVIDIA's."""
    owned = tuple(each.place for each in OWN)
    return [each for each in find_mentions(package) if not each.place.startswith(owned)]


def find_idle(package: Path) -> list[str]:
    """The places of `OWN` without a mention."""
    places = {each.place for each in find_mentions(package)}
    return [own.place for own in OWN if not any(place.startswith(own.place) for place in places)]


def _list_mentions(place: str, text: str) -> Iterator[Mention]:
    imported = _list_import_lines(text)
    for token in tokenize.generate_tokens(io.StringIO(text).readline):
        if token.type in _TOLD and token.start[0] not in imported:
            for number, line in enumerate(_QUOTED.sub("", token.string).splitlines()):
                if _MENTION.search(line):
                    yield Mention(place, token.start[0] + number, line.strip())


def _list_import_lines(text: str) -> frozenset[int]:
    return frozenset(
        line
        for node in ast.walk(ast.parse(text))
        if isinstance(node, ast.ImportFrom) and node.module and says_so(Path(node.module.replace(".", "/")))
        for line in range(node.lineno, (node.end_lineno or node.lineno) + 1)
    )
