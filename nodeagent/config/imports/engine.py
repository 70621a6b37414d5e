"""From somebody else's document to our settings, by a table; and a line for everything that the table does not carry.

Owns how documents are taken apart and how values are read. Knows no product: each has a module with its tables.
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
"""Why what a chart says of its pods is left out, by pattern; the charts of all products say it alike."""
_ENVIRONMENT: Final = ("env", "extraEnv")


class Target(Struct, frozen=True):
    """Which setting of ours a value becomes, and how."""

    key: str
    convert: Convert = lambda value: value


class Tables(Struct, frozen=True):
    """What is known about one kind of document."""

    targets: Mapping[str, Target]
    """By path; a group such as `sharing` may be a target as a whole."""
    reasons: Mapping[str, str] = {}
    """Why what matches the pattern is left out; the first that matches counts."""


class Imported(Struct, frozen=True):
    """Settings by `section.key`, and what could not be said in our words."""

    settings: Mapping[str, object] = {}
    notes: tuple[str, ...] = ()


def translate(document: Mapping[str, object], tables: Tables) -> Imported:
    """Carry over what can be; nothing is left out without a note, but for what is empty and thus a default."""
    settings: dict[str, object] = {}
    left_out: dict[str, list[str]] = {}
    # Variables last: in these products they have the last word.
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
    """All of them, by the name of the file they came from; the last word counts and the first is noted."""
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
    """Every value that is not empty, with its path; environment variables by their names."""
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
    """A truth value, also where it was written as text, as in environment variables."""
    known = {"true": True, "t": True, "1": True, "false": False, "f": False, "0": False}
    if isinstance(value, bool):
        return value
    found = known.get(str(value).lower())
    if found is None:
        raise ValueError("true or false is expected")
    return found


def read_items(value: object) -> list[str]:
    """A list, also where it was written with commas."""
    items = value if isinstance(value, list) else str(value).split(",")
    return [str(item).strip() for item in items if str(item).strip()]


def read_milliseconds(value: object) -> float:
    """Our seconds."""
    return float(str(value)) / 1000


def prefix(start: str, targets: Mapping[str, Target]) -> dict[str, Target]:
    """The same table for a document in which it begins further down."""
    return {f"{start}.{path}": target for path, target in targets.items()}
