"""Reads all specification files of a node as a container runtime does, and finds files in conflict.

Owns an easily forgotten rule: two files of the same directory with the same name of a device are both ignored for the
name, and two in the lower directory take a good file in the higher directory with them.
Refuses to read directories; callers give contents.
"""

import json
from collections import defaultdict
from collections.abc import Iterable, Mapping
from pathlib import PurePosixPath
from typing import Any

from nodeagent.components.cdi.spec import find_spec_problems
from nodeagent.model.cdi import SpecContent
from nodeagent.model.values import Value
from nodeagent.model.yaml_text import parse_yaml

_EXTENSIONS = (".json", ".yaml")


class SpecReading(Value, frozen=True):
    """A runtime's reading of a file."""

    path: str
    kind: str = ""
    version: str = ""
    devices: tuple[str, ...] = ()
    hook: str = ""
    """The program that is run for a container with any of the devices; empty without a hook."""
    problem: str = ""
    """Why the runtime ignores the whole file; empty for a valid file."""

    @property
    def directory(self) -> str:
        """The directory of the file."""
        return str(PurePosixPath(self.path).parent)

    @property
    def names(self) -> tuple[str, ...]:
        """The qualified names defined in the file."""
        return tuple(f"{self.kind}={device}" for device in self.devices)


def parse_spec(content: SpecContent) -> SpecReading:
    """Read the file as a runtime does."""
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
    """The document in a file; the file's name decides between JSON and YAML.

    Raises:
        ValueError: The content is neither; the text says in which line and column.
    """
    try:
        if path.endswith(".json"):
            return json.loads(content)
        return parse_yaml(content)
    except RecursionError as error:
        raise ValueError("it is nested too deeply") from error


def is_spec_name(name: str) -> bool:
    """Whether runtimes read a file of the given name."""
    return name.endswith(_EXTENSIONS)


def find_conflicts(readings: Iterable[SpecReading]) -> dict[str, tuple[str, ...]]:
    """Each qualified name without a resolution in runtimes, and the files in conflict."""
    definitions: dict[tuple[str, str], list[str]] = defaultdict(list)
    for reading in readings:
        for name in reading.names:
            definitions[reading.directory, name].append(reading.path)
    return {name: tuple(paths) for (_, name), paths in definitions.items() if len(paths) > 1}


def describe_conflicts(conflicts: Mapping[str, tuple[str, ...]]) -> dict[str, str]:
    """A sentence for each set of files with the same names."""
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
    """Files of other programs with a definition of the kind, even a bad definition."""
    ours = set(own)
    return tuple(reading.path for reading in readings if reading.kind == kind and reading.path not in ours)


def _guess_kind(document: object) -> str:
    kind = document.get("kind") if isinstance(document, dict) else None
    return kind if isinstance(kind, str) else ""
