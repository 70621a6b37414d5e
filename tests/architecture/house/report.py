"""The measures of the house as rows: what is measured, what it is now, and what it is to be at most."""

import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Final, NamedTuple

from tests.architecture.house.crossings import measure_crossings
from tests.architecture.house.docstrings import Docstring, count_pronouns, list_docstrings
from tests.architecture.house.names import PACKAGES, list_names, list_sources
from tests.architecture.house.protocols import find_singles
from tests.architecture.house.vendor import find_unowned
from tests.architecture.house.words import RETIRED
from tests.architecture.house.words_in_functions import list_retired_in_functions

SHORT_FILE_LINES: Final = 40
SHORT_FILES_MAX: Final = 139
"""What has been reached, a package's own `__init__.py` among them."""
SINGLES_MAX: Final = 3
"""Likewise, of protocols with one implementation."""
_DEEP: Final = ("components", "edge", "rules")
# A call of the kubelet, and through how many files it may go.
CALLS: Final = {"allocate nvidia.com/gpu": 18, "pre_start tencent.com/vcuda-core": 40}


class Row(NamedTuple):
    """One measure. A row without a goal is there to be compared with the same row of another commit."""

    measure: str
    value: float
    goal: float | None = None
    places: tuple[str, ...] = ()


def measure(root: Path, with_crossings: bool) -> Iterator[Row]:
    packages = [root / name for name in PACKAGES]
    sources = [path for package in packages for path in list_sources(package)]
    docstrings = [each for package in packages for each in list_docstrings(package)]
    empty = tuple(f"{each.place}: {each.text}" for each in docstrings if not each.has_content)
    yield Row("pronouns in a hundred words of docstring", round(count_pronouns(docstrings), 1), 6)
    yield Row("docstrings of pronouns alone", len(empty), 0, empty)
    retired = [each for package in packages for each in list_retired(package)]
    yield Row("names of modules and classes with a retired word", len(retired), 0, tuple(retired))
    short = [path for package in packages for path in list_short(package)]
    yield Row(f"files under {SHORT_FILE_LINES} lines", len(short), SHORT_FILES_MAX, _place(root, short))
    singles = [f"{'/'.join(one.protocol.place)}: {one.protocol.name}" for one in find_singles(*packages)]
    yield Row("protocols with one implementation and no wall between", len(singles), SINGLES_MAX, tuple(singles))
    unowned = list(dict.fromkeys(each.place for each in find_unowned(root / "nodeagent")))
    yield Row("files that say NVIDIA or NVML where they mean a GPU", len(unowned), 0, tuple(unowned))
    if with_crossings:
        for call, files in measure_crossings(frozenset(CALLS)).items():
            if call in CALLS:
                yield Row(f"files that {call} crosses", len(files), CALLS[call], tuple(files))
    yield Row("lines of source", sum(map(_count_lines, sources)))
    yield Row("lines of tests", sum(map(_count_lines, list_sources(root / "tests"))))
    inner = list_retired_in_functions(root / "nodeagent")
    yield Row("names of functions and parameters with a retired word", len(inner), None, tuple(inner))


def list_short(package: Path) -> list[Path]:
    """The modules that are shorter than a subject mostly is."""
    return [path for path in list_sources(package) if _count_lines(path) < SHORT_FILE_LINES]


def list_retired(package: Path) -> list[str]:
    """The names with a retired word, each with its place and the term to say instead."""
    instead = {each.word: each.instead for each in RETIRED}
    return [
        f"{place}: {name.name}: not {word!r} but {instead[word]}"
        for name in list_names(package)
        for place in [name.place]
        for word in sorted(name.words & instead.keys())
    ]


def render_table(rows: Iterable[Row]) -> str:
    cells = [(row.measure, f"{row.value:g}", "" if row.goal is None else f"at most {row.goal:g}") for row in rows]
    width = max(len(measure) for measure, _, _ in cells)
    return "".join(f"{measure:<{width}}  {value:>7}  {goal}".rstrip() + "\n" for measure, value, goal in cells)


def render_json(rows: Sequence[Row]) -> str:
    """The rows for programs, with the places that each counts."""
    return json.dumps([row._asdict() for row in rows], indent=1) + "\n"


def count_rooms(root: Path) -> Mapping[str, tuple[int, float]]:
    """By room of the package the words of its docstrings, and the pronouns in a hundred of them."""
    rooms: dict[str, list[Docstring]] = {}
    for docstring in (each for name in PACKAGES for each in list_docstrings(root / name)):
        package, *place = Path(docstring.place.partition(":")[0]).parent.parts
        room = package if package != PACKAGES[0] else "/".join(place[: 2 if place and place[0] in _DEEP else 1])
        rooms.setdefault(room, []).append(docstring)
    return {
        room: (sum(len(each.words) for each in docstrings), round(count_pronouns(docstrings), 1))
        for room, docstrings in rooms.items()
    }


def _place(root: Path, paths: Iterable[Path]) -> tuple[str, ...]:
    return tuple(str(path.relative_to(root)) for path in paths)


def _count_lines(path: Path) -> int:
    return len(path.read_text(encoding="utf-8").splitlines())
