"""Translates another product's document into settings, by a table; with a note for each value outside the table.

Owns the walk through documents and the reading of values. Knows no product: each product has a module with tables.
"""

from collections.abc import Callable, Iterator, Mapping
from fnmatch import fnmatchcase
from typing import Final

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


class Target(Struct, frozen=True):
    """The agent's setting for a value, and the conversion."""

    key: str
    convert: Convert = lambda value: value


class Tables(Struct, frozen=True):
    """The tables of one kind of document."""

    targets: Mapping[str, Target]
    """By path; a group such as `sharing` may be a target as a whole."""
    reasons: Mapping[str, str] = {}
    """The reason for leaving out a path, by pattern; the first match counts."""


class Imported(Struct, frozen=True):
    """Settings by `section.key`, and notes about the values left out."""

    settings: Mapping[str, object] = {}
    notes: tuple[str, ...] = ()


def translate(document: Mapping[str, object], tables: Tables) -> Imported:
    """Translate all known values; every other value gets a note, except empty values, which are defaults."""
    settings: dict[str, object] = {}
    left_out: dict[str, list[str]] = {}
    # Variables last: in these products variables have the last word.
    for path, value in sorted(list_leaves(document, tables.targets), key=lambda leaf: _is_of_environment(leaf[0])):
        target = tables.targets.get(path)
        if target is None:
            left_out.setdefault(_find_reason(path, tables), []).append(path)
            continue
        try:
            settings[target.key] = target.convert(value)
        except ValueError as error:
            left_out.setdefault(f"{value!r} is not understood: {error}", []).append(path)
    return Imported(settings, tuple(f"{', '.join(paths)}: {reason}" for reason, paths in left_out.items()))


def merge_imported(parts: Mapping[str, Imported]) -> Imported:
    """Merge imports, by name of the file; the last value counts, with a note about the replaced value."""
    settings: dict[str, object] = {}
    origins: dict[str, str] = {}
    notes: list[str] = []
    for name, part in parts.items():
        for key, value in part.settings.items():
            if key in settings and settings[key] != value:
                notes.append(f"{name}: {key}: {value!r} replaces {settings[key]!r} of {origins[key]}")
            settings[key], origins[key] = value, name
        notes += [f"{name}: {note}" for note in part.notes]
    return Imported(settings, tuple(notes))


def list_leaves(document: Mapping[str, object], whole: Mapping[str, object]) -> Iterator[tuple[str, object]]:
    """Every non-empty value, with its path; environment variables by name."""
    waiting: list[tuple[str, object]] = [(str(key), value) for key, value in document.items()]
    while waiting:
        path, value = waiting.pop(0)
        if path in whole and not _is_empty(value):
            yield path, value
        elif isinstance(value, Mapping):
            waiting[:0] = [(f"{path}.{key}", inner) for key, inner in value.items()]
        elif isinstance(value, list) and path.rpartition(".")[2] in _ENVIRONMENT:
            waiting[:0] = [(f"{path}.{each['name']}", each.get("value")) for each in value if _is_variable(each)]
        elif not _is_empty(value):
            yield path, value


def _is_of_environment(path: str) -> bool:
    return any(part in _ENVIRONMENT for part in path.split("."))


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


def read_items(value: object) -> list[str]:
    """A list, also written with commas."""
    items = value if isinstance(value, list) else str(value).split(",")
    return [str(item).strip() for item in items if str(item).strip()]


def read_milliseconds(value: object) -> float:
    """Seconds from milliseconds."""
    return float(str(value)) / 1000


def prefix(start: str, targets: Mapping[str, Target]) -> dict[str, Target]:
    """The table for a document with the keys below `start`."""
    return {f"{start}.{path}": target for path, target in targets.items()}
