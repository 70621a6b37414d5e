"""Reads YAML of other authors, whatever the text is: values, or a sentence on why not.

Owns the bounds that the library lacks: its C part recurses once for each level of nesting and takes the whole process
with it, and a few lines of aliases stand for more values than memory holds. The parser's events have neither fault, so
the events are counted first.
Refuses tags beyond the plain types. The agent's own configuration is read by `config/yaml_tree.py`, which keeps lines.
"""

from collections.abc import Iterable
from typing import Any, Final

import yaml

DEEPEST: Final = 64
MOST_VALUES: Final = 500_000


class YamlUnreadable(ValueError):
    """A text is no YAML, or exceeds the bounds; the message says where."""


def parse_yaml(content: bytes | str) -> Any:
    """The document in a text; `None` for an empty text.

    Raises:
        YamlUnreadable: The text is no YAML, or has more than a single document.
    """
    documents = parse_yaml_documents(content)
    if len(documents) > 1:
        raise YamlUnreadable("it has more than one document")
    return documents[0] if documents else None


def parse_yaml_documents(content: bytes | str) -> tuple[Any, ...]:
    """All documents in a text.

    Raises:
        YamlUnreadable: The text is no YAML.
    """
    loader = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
    try:
        _refuse_excess(yaml.parse(content, Loader=loader))
        return tuple(yaml.load_all(content, Loader=loader))
    except yaml.MarkedYAMLError as error:
        mark = error.problem_mark
        place = f" in line {mark.line + 1}, column {mark.column + 1}" if mark is not None else ""
        raise YamlUnreadable(f"it is no YAML: {error.problem}{place}") from error
    except YamlUnreadable:
        raise
    # A date that does not exist and a number of ten thousand digits are a ValueError of Python's own.
    except (yaml.YAMLError, ValueError, RecursionError) as error:
        raise YamlUnreadable(f"it is no YAML: {' '.join(str(error).split())}") from error


def _refuse_excess(events: Iterable[Any]) -> None:
    """Stop at the first event beyond the bounds.

    Raises:
        YamlUnreadable: Nesting too deep, or too many values with every alias spelled out.
    """
    sizes: dict[str, int] = {}
    open_collections: list[tuple[str | None, int]] = []
    values = 0
    for event in events:
        if isinstance(event, yaml.CollectionEndEvent):
            anchor, before = open_collections.pop()
            _note_size(sizes, anchor, values - before)
        elif isinstance(event, yaml.NodeEvent):
            before = values
            values += sizes.get(event.anchor or "", 1) if isinstance(event, yaml.AliasEvent) else 1
            if isinstance(event, yaml.CollectionStartEvent):
                open_collections.append((event.anchor, before))
            elif isinstance(event, yaml.ScalarEvent):
                _note_size(sizes, event.anchor, 1)
        if len(open_collections) > DEEPEST:
            raise YamlUnreadable(f"it is nested too deeply in line {event.start_mark.line + 1}")
        if values > MOST_VALUES:
            raise YamlUnreadable(f"it has more than {MOST_VALUES} values, with every alias spelled out")


def _note_size(sizes: dict[str, int], anchor: str | None, size: int) -> None:
    if anchor is not None:
        sizes[anchor] = size
