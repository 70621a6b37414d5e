"""What the tests of the configuration share: reading a value by a kind, and loading from text."""

from collections.abc import Mapping as MappingOf
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest

from nodeagent.config.errors import ConfigurationInvalid
from nodeagent.config.knobs import Findings, Kind, Place, RejectedError
from nodeagent.config.load import Loaded, load_settings
from nodeagent.config.tree import Node, Origin
from nodeagent.config.yaml_tree import parse_yaml

HERE = Origin("file", "test.yaml", 1)


def tree_of(text: str) -> Node:
    parsed = parse_yaml(text, lambda line: Origin("file", "test.yaml", line))
    assert parsed.problems == ()
    assert parsed.node is not None
    return parsed.node


def read(kind: Kind[Any], text: str) -> Any:
    """The value that a kind makes of a YAML text."""
    return kind.read(tree_of(text), Place(Findings(), "here"))


def complaints(kind: Kind[Any], text: str, *, secret: bool = False) -> list[str]:
    """What a kind says about a YAML text that it must refuse."""
    findings = Findings()
    with suppress(RejectedError):
        kind.read(tree_of(text), Place(findings, "here", secret=secret))
    assert findings.problems
    return [str(problem) for problem in findings.problems]


def load_text(
    directory: Path, text: str, *, environ: MappingOf[str, str] | None = None, overrides: tuple[str, ...] = ()
) -> Loaded:
    file = directory / "config.yaml"
    file.write_text(text, encoding="utf-8")
    return load_settings(file, environ=environ or {}, overrides=overrides)


def problems_of(directory: Path, text: str, **sources: Any) -> list[str]:
    """The problems of a main file with that text, without the path of the directory."""
    with pytest.raises(ConfigurationInvalid) as caught:
        load_text(directory, text, **sources)
    return [str(problem).replace(f"{directory}/", "") for problem in caught.value.problems]
