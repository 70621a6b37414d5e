"""Located values: values of a file, the environment or a flag, with their origins.

YAML is read into a tree before judging, so that every problem can name file and line, and layers can be merged without
losing origins.
A scalar keeps the written text: the receiving setting decides about the meaning of `1:0`, `no` or `007`, never YAML.
Owns the tree and its merge; knows neither YAML nor the settings.
"""

from typing import Literal, TypeAlias

from msgspec import Struct

Layer: TypeAlias = Literal["default", "file", "environment", "flag"]


class Origin(Struct, frozen=True):
    """The origin of a value: `/etc/nodeagent/config.yaml:7`, `env NODEAGENT_HTTP__LISTEN`, `--set`, `default`."""

    layer: Layer
    name: str = ""
    line: int = 0

    def __str__(self) -> str:
        match self.layer:
            case "file":
                return f"{self.name}:{self.line}" if self.line else self.name
            case "environment":
                return f"env {self.name}"
            case _:
                return f"{self.layer} {self.name}".rstrip()


DEFAULT = Origin("default")


class Scalar(Struct, frozen=True):
    """Text as written; quoted text is never a number, a truth value or null."""

    text: str
    origin: Origin
    quoted: bool = False

    @property
    def is_null(self) -> bool:
        """Whether the writer left the value out: empty, `~` or `null`, unquoted."""
        return not self.quoted and self.text in {"", "~", "null", "Null", "NULL"}


class Sequence(Struct, frozen=True):
    """A list of located values."""

    items: "tuple[Node, ...]"
    origin: Origin


class Mapping(Struct, frozen=True):
    """Keys with their values; `key_origins` has the origin of each key."""

    entries: "dict[str, Node]"
    origin: Origin
    key_origins: dict[str, Origin]


Node: TypeAlias = Scalar | Sequence | Mapping

EMPTY = Mapping({}, DEFAULT, {})


def merge(under: Node, over: Node) -> Node:
    """Lay `over` on `under`: mappings merge key by key, all other values (lists too) are replaced whole.

    A section with only commented-out lines changes no setting.
    """
    if isinstance(under, Mapping) and isinstance(over, Scalar) and over.is_null:
        return under
    if not isinstance(under, Mapping) or not isinstance(over, Mapping):
        return over
    entries = dict(under.entries)
    for key, node in over.entries.items():
        entries[key] = merge(entries[key], node) if key in entries else node
    return Mapping(entries, over.origin, {**under.key_origins, **over.key_origins})


def nest(path: tuple[str, ...], node: Node) -> Node:
    """A tree with only `node`, at `path`."""
    for key in reversed(path):
        node = Mapping({key: node}, node.origin, {key: node.origin})
    return node


def shorten(node: Node, limit: int = 60) -> str:
    """The value in one short line for the author, also for a long or hostile value."""
    match node:
        case Scalar(text=text):
            shown = text if len(text) <= limit else text[: limit - 1] + "…"
            return repr(shown)
        case Sequence(items=items):
            return f"a list of {len(items)}"
        case _:
            return f"a mapping of {len(node.entries)}"
