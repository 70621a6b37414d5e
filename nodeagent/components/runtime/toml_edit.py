"""Changes single keys of a TOML file and leaves everything else as people wrote it: comments, order, spacing.

Owns the proof: another parser reads the written text, and must find exactly the requested keys changed. Refuses to
write a text that does not pass.
"""

import tomllib
from collections.abc import Collection, Mapping, Sequence
from copy import deepcopy
from typing import Any

import tomlkit
from tomlkit.exceptions import TOMLKitError
from tomlkit.items import AbstractTable, Array

from nodeagent.model.errors import NodeagentError

KeyPath = tuple[str, ...]


class ConfigUnparsable(NodeagentError):
    """A configuration file is not in the right format."""

    def __init__(self, path: str, reason: str) -> None:
        super().__init__(f"cannot read {path}: {reason}: mend the file, nothing was written")
        self.reason = reason


class ConfigUneditable(NodeagentError):
    """A file is valid, but cannot take the change without a change of other lines."""

    def __init__(self, path: str, keys: Sequence[KeyPath], reason: str) -> None:
        names = ", ".join(".".join(key) for key in keys)
        super().__init__(f"cannot set {names} in {path}: {reason}: set it by hand, nothing was written")


def parse_toml(path: str, content: bytes | None) -> dict[str, Any]:
    """The document; an absent or empty file is an empty one.

    Raises:
        ConfigUnparsable: the file is no TOML; the message has line and column.
    """
    try:
        return tomllib.loads((content or b"").decode("utf-8"))
    except UnicodeDecodeError as error:
        raise ConfigUnparsable(path, f"byte {error.start} is no UTF-8") from error
    except tomllib.TOMLDecodeError as error:
        raise ConfigUnparsable(path, f"it is no TOML, {str(error)[:1].lower()}{str(error)[1:]}") from error
    except RecursionError as error:
        raise ConfigUnparsable(path, "it is nested too deeply") from error
    except ValueError as error:
        # For a number with thousands of digits the parser has no error of its own.
        raise ConfigUnparsable(path, f"it has a value that nobody can read, {error}") from error


def set_keys(path: str, content: bytes, changes: Mapping[KeyPath, Any]) -> bytes:
    """The file with the keys of `changes` set, missing tables added.

    Raises:
        ConfigUnparsable: the file is no TOML.
        ConfigUneditable: other keys or lines would change, too.
    """
    wanted = merge(parse_toml(path, content), _nest(changes))
    try:
        document = tomlkit.parse(content.decode("utf-8"))
        for key, value in changes.items():
            _set(document, key, value)
        edited = tomlkit.dumps(document).encode("utf-8")
    except (TOMLKitError, RecursionError, TypeError, AttributeError, ValueError, KeyError) as error:
        # The library that keeps comments meets layouts that it cannot extend; it documents none of them.
        raise ConfigUneditable(path, tuple(changes), f"{error}") from error
    if parse_result(path, edited, changes) != wanted:
        raise ConfigUneditable(path, tuple(changes), "other keys would change with it")
    if not _keeps_lines(content.decode("utf-8"), edited.decode("utf-8"), {key[-1] for key in changes}):
        # The library gathers tables of one list that other tables stand between.
        raise ConfigUneditable(path, tuple(changes), "lines would move: put the tables of each list together")
    return edited


def _keeps_lines(before: str, after: str, names: Collection[str]) -> bool:
    """Whether every line is still there, in order; lines of the changed keys may differ."""
    rest = iter([line.strip() for line in after.splitlines()])
    lines = (line.strip() for line in before.splitlines())
    return all(line in rest for line in lines if line and not any(name in line for name in names))


def parse_result(path: str, edited: bytes, changes: Mapping[KeyPath, Any]) -> dict[str, Any]:
    """The text as written, read by another parser.

    Raises:
        ConfigUneditable: the text cannot be read any more.
    """
    try:
        return parse_toml(path, edited)
    except ConfigUnparsable as error:
        raise ConfigUneditable(path, tuple(changes), error.reason) from error


def get(document: Mapping[str, Any], key: KeyPath) -> Any:
    """The value at a path; `None` for a path without a value."""
    value: Any = document
    for part in key:
        if not isinstance(value, Mapping) or part not in value:
            return None
        value = value[part]
    return value


def get_table(document: Mapping[str, Any], key: KeyPath) -> dict[str, Any]:
    """The table at a path; empty where there is no table."""
    value = get(document, key)
    return dict(value) if isinstance(value, Mapping) else {}


def merge(base: Mapping[str, Any], over: Mapping[str, Any]) -> dict[str, Any]:
    """Tables joined key by key; any other value in both is taken from `over`."""
    merged = deepcopy(dict(base))
    for key, value in over.items():
        known = merged.get(key)
        both = isinstance(known, Mapping) and isinstance(value, Mapping)
        merged[key] = merge(known, value) if both else deepcopy(value)  # type: ignore[arg-type]  # both are mappings
    return merged


def _nest(changes: Mapping[KeyPath, Any]) -> dict[str, Any]:
    nested: dict[str, Any] = {}
    for key, value in changes.items():
        for part in reversed(key):
            value = {part: value}  # noqa: PLW2901  # it grows from the inside out
        nested = merge(nested, value)
    return nested


def _set(document: Any, key: KeyPath, value: Any) -> None:
    table = document
    for number, part in enumerate(key[:-1]):
        if part not in table:
            # Only the innermost table needs a header of its own.
            table[part] = tomlkit.table(is_super_table=number < len(key) - 2)
        table = table[part]
        if not isinstance(table, Mapping | AbstractTable):
            raise TypeError(f"{part} is no table")
    known = table.get(key[-1])
    if isinstance(known, Array) and isinstance(value, list) and value[: len(known)] == known.unwrap():
        # Items appended to a list leave its lines and comments as they are.
        for item in value[len(known) :]:
            known.append(item)
    else:
        table[key[-1]] = value
