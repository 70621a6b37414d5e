"""Translates another product's document into settings, by a table; with a note for each value outside the table.

Owns the walk through documents and the reading of values. Knows no product: each product has a module with tables.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping
from fnmatch import fnmatchcase
from typing import Final, cast

from msgspec import Struct

Convert = Callable[[object], object]
NO_COUNTERPART: Final = "nothing here corresponds to it"
IN_OUR_CHART: Final = "belongs to the deployment; deploy/chart/values.yaml has its own"
DEPLOYMENT: Final = dict.fromkeys(
    (
        "affinity.*",
        "image.*",
        "imagePullSecrets",
        "nodeSelector.*",
        "pod*",
        "priorityClassName",
        "resources.*",
        "runtimeClassName",
        "securityContext.*",
        "tolerations",
    ),
    IN_OUR_CHART,
)
"""The reasons for leaving out a chart's values about pods, by pattern; the charts of all products have such values."""
_ENVIRONMENT: Final = ("env", "extraEnv")
_ARGUMENTS: Final = ("args", "arguments")
UNSAID: Final = object()
"""The conversion of a value that leaves the setting to others."""


class Target(Struct, frozen=True):
    """The agent's setting for a value, and the conversion."""

    key: str
    convert: Convert = lambda value: value
    also: tuple[str, ...] = ()
    """Further settings with the same value."""


class Tables(Struct, frozen=True):
    """The tables of one kind of document."""

    targets: Mapping[str, Target]
    """By path; a group such as `sharing` may be a target as a whole."""
    reasons: Mapping[str, str] = {}
    """The reason for leaving out a path, by pattern; the first match counts."""
    last: tuple[str, ...] = ()
    """Paths that outrank environment variables, in this order."""
    values: Mapping[str, Target] = {}
    """By path, as `targets`: what this project's chart is told, and not the agent."""


class NamedFile(Struct, frozen=True):
    """A file named by an option, with a setting in it."""

    path: str
    key: str
    """The setting."""
    consequence: str
    """The consequence for containers where the file is not imported."""
    is_in_pod: bool = False
    """Whether the path is that of a pod, and means nothing on this machine."""


class Imported(Struct, frozen=True):
    """Settings by `section.key`, and notes about the values left out."""

    settings: Mapping[str, object] = {}
    notes: tuple[str, ...] = ()
    files: tuple[NamedFile, ...] = ()
    """Files with settings that are not imported yet."""
    values: Mapping[str, object] = {}
    """Values of this project's chart, by path."""
    groups: tuple[Mapping[str, object], ...] = ()
    """Groups of nodes with driver pods, as the chart's `driver.groups` has them."""


def translate(document: Mapping[str, object], tables: Tables) -> Imported:
    """Translate all known values; every other value gets a note, except empty values, which are defaults."""
    settings: dict[str, object] = {}
    values: dict[str, object] = {}
    left_out: dict[str, list[str]] = {}
    known = {**tables.values, **tables.targets}
    for path, value in sorted(list_leaves(document, known), key=lambda leaf: _rank(leaf[0], tables.last)):
        target = known.get(path)
        if target is None:
            left_out.setdefault(_find_reason(path, tables), []).append(path)
            continue
        try:
            converted = target.convert(value)
        except ValueError as error:
            left_out.setdefault(f"{value!r} is not understood: {error}", []).append(path)
            continue
        if converted is not UNSAID:
            (settings if path in tables.targets else values).update(
                dict.fromkeys((target.key, *target.also), converted)
            )
    notes = tuple(f"{', '.join(paths)}: {reason}" for reason, paths in left_out.items())
    return Imported(settings, notes, values=values)


def merge_imported(parts: Mapping[str, Imported]) -> Imported:
    """Merge imports, by name of the file; the last value counts, with a note about the replaced value."""
    settings: dict[str, object] = {}
    values: dict[str, object] = {}
    origins: dict[str, str] = {}
    notes: list[str] = []
    for name, part in parts.items():
        for known, given in ((settings, part.settings), (values, part.values)):
            for key, value in given.items():
                if key in known and known[key] != value:
                    notes.append(f"{name}: {key}: {value!r} replaces {known[key]!r} of {origins[key]}")
                known[key], origins[key] = value, name
        notes += [f"{name}: {note}" for note in part.notes]
    files = dict.fromkeys(each for part in parts.values() for each in part.files if each.key not in settings)
    groups = tuple(each for part in parts.values() for each in part.groups)
    return Imported(settings, tuple(notes), tuple(files), values, groups)


def nest(values: Mapping[str, object]) -> dict[str, object]:
    """The tree of values that are known by path."""
    tree: dict[str, object] = {}
    for path, value in values.items():
        *folders, name = path.split(".")
        place = tree
        for folder in folders:
            place = cast("dict[str, object]", place.setdefault(folder, {}))
        place[name] = value
    return tree


def list_leaves(document: Mapping[str, object], whole: Mapping[str, object]) -> Iterator[tuple[str, object]]:
    """Every non-empty value, with its path; environment variables and options of programs by name."""
    waiting: list[tuple[str, object]] = [(str(key), value) for key, value in document.items()]
    while waiting:
        path, value = waiting.pop(0)
        if path in whole and not _is_empty(value):
            yield path, value
        elif isinstance(value, Mapping):
            waiting[:0] = [(f"{path}.{key}", inner) for key, inner in value.items()]
        elif isinstance(value, list) and path.rpartition(".")[2] in _ENVIRONMENT:
            waiting[:0] = [(f"{path}.{each['name']}", each.get("value")) for each in value if _is_variable(each)]
        elif isinstance(value, list) and path.rpartition(".")[2] in _ARGUMENTS:
            waiting[:0] = [(f"{path}.{name}", inner) for name, inner in read_options(value).items()]
        elif not _is_empty(value):
            yield path, value


def _rank(path: str, last: tuple[str, ...]) -> int:
    """The place of a value among those of the same setting: in these products options have the last word."""
    parts = path.split(".")
    if any(part in _ARGUMENTS for part in parts):
        return len(last) + 2
    return last.index(path) + 2 if path in last else int(any(part in _ENVIRONMENT for part in parts))


def read_options(words: Iterable[object]) -> dict[str, str]:
    """The options of a program by name, without dashes; a word that belongs to no option stands for itself.

    A repeated option has all its values, with commas; an option without a value is a switch.
    """
    found: dict[str, str] = {}
    waiting = [str(word) for word in words]
    while waiting:
        word = waiting.pop(0)
        name, equals, value = word.partition("=")
        if not word.startswith("-"):
            found[word] = word
            continue
        if not equals:
            value = "true" if not waiting or waiting[0].startswith("-") else waiting.pop(0)
        name = name.lstrip("-").replace("_", "-")
        found[name] = f"{found[name]},{value}" if found.get(name, value) != value else value
    return found


def _is_variable(entry: object) -> bool:
    return isinstance(entry, Mapping) and "name" in entry


def _is_empty(value: object) -> bool:
    return value is None or value in ("", [], {})


def _find_reason(path: str, tables: Tables) -> str:
    return next((reason for pattern, reason in tables.reasons.items() if fnmatchcase(path, pattern)), NO_COUNTERPART)


def read_flag(value: object) -> bool:
    """A truth value, also written as text, as in environment variables."""
    known = {"true": True, "t": True, "1": True, "false": False, "f": False, "0": False}
    if isinstance(value, bool):
        return value
    found = known.get(str(value).lower())
    if found is None:
        raise ValueError("true or false is expected")
    return found


def read_inverted_flag(value: object) -> bool:
    """The setting of a switch that is negative there."""
    return not read_flag(value)


def read_set_flag(value: object) -> object:
    """A switch that counts only where it is on."""
    return read_flag(value) or UNSAID


def read_items(value: object) -> list[str]:
    """A list, also written with commas."""
    items = value if isinstance(value, list) else str(value).split(",")
    return [str(item).strip() for item in items if str(item).strip()]


def read_numbers(value: object) -> list[int]:
    """A list of whole numbers, also written with commas."""
    return [int(item) for item in read_items(value)]


def read_milliseconds(value: object) -> float:
    """Seconds from milliseconds."""
    return float(str(value)) / 1000


def prefix(start: str, targets: Mapping[str, Target]) -> dict[str, Target]:
    """The table for a document with the keys below `start`."""
    return {f"{start}.{path}": target for path, target in targets.items()}
