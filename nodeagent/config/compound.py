"""Kinds of compound values: lists, maps and nested sections.

Each kind reads all members before refusing, so that every wrong member is named at its own place.
Owns the compound kinds; single values are in `kinds`.
"""

from collections.abc import Mapping as MappingOf
from contextlib import suppress
from types import MappingProxyType
from typing import Generic, TypeVar, cast

from msgspec import Struct

from nodeagent.config.knobs import Kind, Place, RejectedError, Section, is_absent, knobs_of, read_section
from nodeagent.config.tree import Mapping, Node, Scalar, Sequence

T = TypeVar("T")
S = TypeVar("S", bound=Section)


class ListOf(Struct, Generic[T], frozen=True):
    """A list; a single value or text with commas is a list too, as written in flags and environment variables."""

    kind: Kind[T]
    shortest: int = 0
    distinct: bool = True

    @property
    def label(self) -> str:
        """The name of the kind in problems and on the reference page."""
        return f"a list, each {self.kind.label}"

    def read(self, node: Node, place: Place) -> tuple[T, ...]:
        """Every item at its own place."""
        found: list[T] = []
        known = len(place.findings.problems)
        for index, item in enumerate(self._items(node, place)):
            with suppress(RejectedError):
                found.append(self._read_item(item, place.item(index), found))
        if len(place.findings.problems) > known:
            raise RejectedError
        if len(found) < self.shortest:
            raise place.wrong(node, f"at least {self.shortest} of {self.kind.label}")
        return tuple(found)

    def _read_item(self, item: Node, place: Place, earlier: list[T]) -> T:
        """One item, compared with the items before; a faulty item counts as no repetition."""
        known = len(place.findings.problems)
        value = self.kind.read(item, place)
        if len(place.findings.problems) > known:
            raise RejectedError
        if self.distinct and value in earlier:
            raise place.wrong(item, "each value once")
        return value

    def _items(self, node: Node, place: Place) -> tuple[Node, ...]:
        if is_absent(node):
            return ()
        match node:
            case Sequence(items=items):
                return items
            case Scalar(text=text, quoted=quoted, origin=origin):
                return tuple(Scalar(part.strip(), origin, quoted) for part in text.split(",") if part.strip())
            case _:
                raise place.wrong(node, self.label)

    def plain(self, value: tuple[T, ...]) -> object:
        """A list of the plain items."""
        return [self.kind.plain(item) for item in value]

    def json_schema(self) -> dict[str, object]:
        """An array, or text in place of an array."""
        array = {"type": "array", "items": self.kind.json_schema(), "minItems": self.shortest}
        array["uniqueItems"] = self.distinct
        return {"anyOf": [array, {"type": ["string", "integer", "null"]}]}


class MapOf(Struct, Generic[T], frozen=True):
    """Free keys of one kind, with values of another kind."""

    keys: Kind[str]
    values: Kind[T]

    @property
    def label(self) -> str:
        """The name of the kind in problems and on the reference page."""
        return f"a mapping from {self.keys.label} to {self.values.label}"

    def read(self, node: Node, place: Place) -> MappingOf[str, T]:
        """Every key and every value at its own place."""
        if is_absent(node):
            return MappingProxyType({})
        if not isinstance(node, Mapping):
            raise place.wrong(node, self.label)
        found: dict[str, T] = {}
        known = len(place.findings.problems)
        for key, item in node.entries.items():
            here = place.key(key)
            with suppress(RejectedError):
                name = self.keys.read(Scalar(key, node.key_origins[key]), here)
                found[name] = self.values.read(item, here)
        if len(place.findings.problems) > known:
            raise RejectedError
        return MappingProxyType(found)

    def plain(self, value: MappingOf[str, T]) -> object:
        """A mapping of the plain values."""
        return {key: self.values.plain(item) for key, item in value.items()}

    def json_schema(self) -> dict[str, object]:
        """An object whose members are all alike."""
        return {
            "type": ["object", "null"],
            "propertyNames": self.keys.json_schema(),
            "additionalProperties": self.values.json_schema(),
        }


class Nested(Struct, Generic[S], frozen=True):
    """A section within a section, or one record of a list."""

    section: type[S]

    @property
    def label(self) -> str:
        """The name of the kind in problems and on the reference page."""
        return f"a mapping with {', '.join(knobs_of(self.section))}"

    def read(self, node: Node, place: Place) -> S:
        """Every key at its own place."""
        return cast("S", read_section(self.section, node, place))

    def plain(self, value: S) -> object:
        """A mapping of the plain values."""
        return plain_section(value)

    def json_schema(self) -> dict[str, object]:
        """An object with known keys, without additional keys."""
        return section_schema(self.section)


def plain_section(section: Section) -> dict[str, object]:
    """The section in types of YAML and JSON."""
    return {name: declared.kind.plain(getattr(section, name)) for name, declared in knobs_of(type(section)).items()}


def section_schema(section: type[Section]) -> dict[str, object]:
    """The JSON Schema of a section."""
    knobs = knobs_of(section)
    properties = {
        name: {**declared.kind.json_schema(), "description": f"{declared.what}. {declared.why}".strip()}
        | ({} if declared.required else {"default": declared.kind.plain(declared.default)})
        for name, declared in knobs.items()
    }
    needed = [name for name, declared in knobs.items() if declared.required]
    return {
        "type": "object" if needed else ["object", "null"],
        "description": (section.__doc__ or "").strip(),
        "properties": properties,
        "required": needed,
        "additionalProperties": False,
    }
