"""`nodeagent config show` and `nodeagent config schema`: settings in force, origins, and allowed settings.

Pure: settings and declarations in, text and plain data out. Secrets come out as `***` everywhere.
The reference page and the example file are made in `reference`.
"""

import json
from collections.abc import Iterator
from typing import Final

from msgspec import Struct

from nodeagent.config.compound import section_schema
from nodeagent.config.knobs import Knob, Section, knobs_of
from nodeagent.config.load import Loaded
from nodeagent.config.schema import Settings
from nodeagent.config.tree import DEFAULT

HIDDEN: Final = "***"


class Leaf(Struct, frozen=True):
    """A setting with its value, in plain types and safe to show."""

    path: str
    value: object
    knob: Knob


def walk_leaves(section: Section, path: str = "") -> Iterator[Leaf]:
    """Every setting that is no section, in the order of declaration."""
    for name, declared in knobs_of(type(section)).items():
        here = f"{path}.{name}" if path else name
        value = getattr(section, name)
        if isinstance(value, Section):
            yield from walk_leaves(value, here)
        else:
            yield Leaf(here, plain_value(declared, value), declared)


def plain_value(declared: Knob, value: object) -> object:
    """The value in types of JSON; a secret is replaced by a mark."""
    plain = declared.kind.plain(value)
    return HIDDEN if declared.secret and plain else plain


def show_value(value: object) -> str:
    """A plain value on one line, as in a file."""
    return value if isinstance(value, str) and value else json.dumps(value, ensure_ascii=False)


def render_table(loaded: Loaded, *, only_set: bool = False) -> str:
    """Key, value and origin, a line each; `only_set` leaves the defaults out."""
    rows = [
        (leaf.path, show_value(leaf.value), str(loaded.origin_of(leaf.path)))
        for leaf in walk_leaves(loaded.settings)
        if not only_set or loaded.origin_of(leaf.path) != DEFAULT
    ]
    if not rows:
        return ""
    widths = [max(len(row[column]) for row in rows) for column in range(2)]
    return "".join(f"{key:<{widths[0]}}  {value:<{widths[1]}}  {origin}\n" for key, value, origin in rows)


def render_json(loaded: Loaded, *, only_set: bool = False) -> dict[str, object]:
    """The settings for programs: `config show --json`."""
    settings = {
        leaf.path: {
            "value": leaf.value,
            "layer": loaded.origin_of(leaf.path).layer,
            "origin": str(loaded.origin_of(leaf.path)),
            "reloadable": leaf.knob.reload,
        }
        for leaf in walk_leaves(loaded.settings)
        if not only_set or loaded.origin_of(leaf.path) != DEFAULT
    }
    return {
        "version": 1,
        "files": [str(path) for path in loaded.files],
        "notices": list(loaded.notices),
        "settings": settings,
    }


def render_json_schema() -> dict[str, object]:
    """The JSON Schema of the configuration file, for editors and generators of such files."""
    return {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "title": "nodeagent configuration",
        **section_schema(Settings),
    }
