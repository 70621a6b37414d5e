"""Reads all specification files of a node as a container runtime does, and says what cancels what.

Owns the rule that everybody forgets: two files of one directory that define the same name are both ignored for that
name, and two in the lower directory take a good one in the higher directory with them.
Refuses to read directories; it is given contents.
"""

import json
from collections import defaultdict
from collections.abc import Iterable, Mapping
from pathlib import PurePosixPath
from typing import Any

from nodeagent.components.cdi.validate import find_spec_problems
from nodeagent.model.cdi import SpecContent
from nodeagent.model.values import Value
from nodeagent.model.yaml_text import parse_yaml

_EXTENSIONS = (".json", ".yaml")


class SpecReading(Value, frozen=True):
    """What a runtime makes of one file."""

    path: str
    kind: str = ""
    version: str = ""
    devices: tuple[str, ...] = ()
    hook: str = ""
    """The program that is run for a container with any of its devices; empty when none is."""
    problem: str = ""
    """Why the runtime ignores the whole file; empty when it does not."""

    @property
    def directory(self) -> str:
        """The directory it lies in."""
        return str(PurePosixPath(self.path).parent)

    @property
    def names(self) -> tuple[str, ...]:
        """The qualified names that it defines."""
        return tuple(f"{self.kind}={device}" for device in self.devices)


def parse_spec(content: SpecContent) -> SpecReading:
    """What a runtime makes of the file."""
    if content.problem:
        return SpecReading(path=content.path, problem=content.problem)
    try:
        document = parse_document(content.path, content.content)
    except ValueError as error:
        return SpecReading(path=content.path, problem=str(error))
    problems = find_spec_problems(document)
    if problems:
        return SpecReading(path=content.path, kind=_guess_kind(document), problem="; ".join(problems))
    return SpecReading(
        path=content.path,
        kind=document["kind"],
        version=document["cdiVersion"],
        devices=tuple(device["name"] for device in document["devices"]),
        hook=next((hook["path"] for hook in document.get("containerEdits", {}).get("hooks", ())), ""),
    )


def parse_document(path: str, content: bytes) -> Any:
    """The document in a file; its name says whether it is JSON or YAML.

    Raises:
        ValueError: it is neither; says in which line and column.
    """
    try:
        if path.endswith(".json"):
            return json.loads(content)
        return parse_yaml(content)
    except RecursionError as error:
        raise ValueError("it is nested too deeply") from error


def is_spec_name(name: str) -> bool:
    """Whether runtimes read a file of this name."""
    return name.endswith(_EXTENSIONS)


def find_conflicts(readings: Iterable[SpecReading]) -> dict[str, tuple[str, ...]]:
    """Each qualified name that no runtime resolves, and the files that cancel each other."""
    definitions: dict[tuple[str, str], list[str]] = defaultdict(list)
    for reading in readings:
        for name in reading.names:
            definitions[reading.directory, name].append(reading.path)
    return {name: tuple(paths) for (_, name), paths in definitions.items() if len(paths) > 1}


def describe_conflicts(conflicts: Mapping[str, tuple[str, ...]]) -> dict[str, str]:
    """One sentence for each set of files that are in each other's way."""
    names: dict[tuple[str, ...], list[str]] = defaultdict(list)
    for name, paths in conflicts.items():
        names[paths].append(name)
    return {
        ", ".join(paths): f"{' and '.join(paths)} both define {min(each)}"
        + (f" and {len(each) - 1} more names" if len(each) > 1 else "")
        + ": no runtime resolves these names until one of the files is gone"
        for paths, each in names.items()
    }


def find_foreign_definers(readings: Iterable[SpecReading], kind: str, own: Iterable[str]) -> tuple[str, ...]:
    """Files of others that define a kind, even badly."""
    ours = set(own)
    return tuple(reading.path for reading in readings if reading.kind == kind and reading.path not in ours)


def _guess_kind(document: object) -> str:
    kind = document.get("kind") if isinstance(document, dict) else None
    return kind if isinstance(kind, str) else ""
