"""YAML text to located values, bounded in depth and number for any text.

PyYAML's parser does the syntax; the tree is built here from the parser's events, because PyYAML's constructor loses
lines, takes duplicate keys silently, guesses types, and follows aliases without bound.
Refuses: tags, merge keys, several documents, keys other than plain text, aliases that expand without end.
"""

from collections.abc import Callable, Iterator
from typing import Any, Final, NoReturn

import yaml
from msgspec import Struct

from nodeagent.config.errors import Problem
from nodeagent.config.tree import Mapping, Node, Origin, Scalar, Sequence

DEEPEST: Final = 32
MOST_VALUES: Final = 20_000
_TEXT_TAGS: Final = ("!", "tag:yaml.org,2002:str")


class Parsed(Struct, frozen=True):
    """The tree and the problems of a text; `node` is `None` for an empty text."""

    node: Node | None
    problems: tuple[Problem, ...]


class _StopReadingError(Exception):
    """The rest of the text cannot be read; the reason is already noted."""


class _Frame:
    """A list or mapping under construction."""

    def __init__(self, origin: Origin, anchor: str | None, *, is_mapping: bool) -> None:
        self.origin, self.anchor, self.is_mapping = origin, anchor, is_mapping
        self.items: list[Node] = []
        self.entries: dict[str, Node] = {}
        self.key_origins: dict[str, Origin] = {}
        self.key: str | None = None
        self.key_origin = origin
        self.size = 1

    def finish(self) -> Node:
        """The complete list or mapping."""
        if self.is_mapping:
            return Mapping(self.entries, self.origin, self.key_origins)
        return Sequence(tuple(self.items), self.origin)


class _Builder:
    """Turns parser events into a tree."""

    def __init__(self, locate: Callable[[int], Origin]) -> None:
        self.locate = locate
        self.problems: list[Problem] = []
        self.frames: list[_Frame] = []
        self.anchors: dict[str, tuple[Node, int]] = {}
        self.documents = 0
        self.root: Node | None = None

    def take(self, event: Any) -> None:
        """Take one event; event names are PyYAML's."""
        origin = self.locate(event.start_mark.line + 1)
        match type(event).__name__:
            case "DocumentStartEvent":
                self.documents += 1
                if self.documents > 1:
                    self.stop(origin, "a second document begins; write everything in one")
            case "ScalarEvent":
                self.take_scalar(event, origin)
            case "AliasEvent":
                self.take_alias(event.anchor, origin)
            case "SequenceStartEvent" | "MappingStartEvent":
                self.open(event, origin)
            case "SequenceEndEvent" | "MappingEndEvent":
                frame = self.frames.pop()
                self.put(frame.finish(), frame.size, frame.anchor, frame.origin)
            case _:
                pass  # stream and document ends say nothing

    def take_scalar(self, event: Any, origin: Origin) -> None:
        """Take a single value."""
        tagged = event.tag is not None
        if tagged and event.tag not in _TEXT_TAGS:
            self.note(origin, f"tag {event.tag!r} is not read; write the value plainly")
        quoted = tagged or event.style not in {None, ""}
        self.put(Scalar(event.value, origin, quoted), 1, event.anchor, origin)

    def take_alias(self, name: str, origin: Origin) -> None:
        """Take the value of an anchor, if complete by now."""
        known = self.anchors.get(name)
        if known is None:
            self.stop(origin, f"alias *{name} refers to nothing that is complete here")
        self.put(*known, None, origin)

    def open(self, event: Any, origin: Origin) -> None:
        """Begin a list or mapping."""
        is_mapping = type(event).__name__ == "MappingStartEvent"
        if event.tag is not None:
            self.note(origin, f"tag {event.tag!r} is not read; write the value plainly")
        if len(self.frames) >= DEEPEST:
            self.stop(origin, f"more than {DEEPEST} levels are nested; no setting is that deep")
        self.frames.append(_Frame(origin, event.anchor, is_mapping=is_mapping))

    def put(self, node: Node, size: int, anchor: str | None, origin: Origin) -> None:
        """Add a complete value to the enclosing list or mapping."""
        if anchor is not None:
            self.anchors[anchor] = (node, size)
        if not self.frames:
            self.root = node
            return
        frame = self.frames[-1]
        frame.size += size
        if frame.size > MOST_VALUES:
            self.stop(origin, f"more than {MOST_VALUES} values, aliases expanded; no configuration needs that many")
        if not frame.is_mapping:
            frame.items.append(node)
        elif frame.key is None:
            frame.key, frame.key_origin = self.key_text(node, origin), origin
        else:
            self.put_entry(frame, frame.key, node)

    def put_entry(self, frame: _Frame, key: str, node: Node) -> None:
        """Add a key with its value; the first of two equal keys stays."""
        frame.key = None
        if key in frame.entries:
            first = frame.key_origins[key]
            self.note(frame.key_origin, f"key {key!r} is given twice, first at {first}; keep one", key)
            return
        frame.entries[key] = node
        frame.key_origins[key] = frame.key_origin

    def key_text(self, node: Node, origin: Origin) -> str:
        """The text of a key."""
        if not isinstance(node, Scalar):
            self.stop(origin, "a key is a list or a mapping; keys are plain text")
        if node.text == "<<" and not node.quoted:
            self.stop(origin, "merge key << is not read; write the values out")
        return node.text

    def note(self, origin: Origin, message: str, key: str = "") -> None:
        """Note a problem at the present path."""
        keys = [frame.key for frame in self.frames if frame.key is not None]
        self.problems.append(Problem(origin, ".".join([*keys, key] if key else keys), message))

    def stop(self, origin: Origin, message: str) -> NoReturn:
        """Note a problem and stop reading."""
        self.note(origin, message)
        raise _StopReadingError


def parse_yaml(text: str, locate: Callable[[int], Origin]) -> Parsed:
    """Read one YAML document; `locate` gives the origin of a line."""
    builder = _Builder(locate)
    try:
        for event in _events(text):
            builder.take(event)
    except _StopReadingError:
        return Parsed(None, tuple(builder.problems))
    except _Unreadable as error:
        builder.problems.append(Problem(locate(error.line), "", error.message))
        return Parsed(None, tuple(builder.problems))
    return Parsed(builder.root, tuple(builder.problems))


class _Unreadable(Exception):  # never leaves this module
    """The text is not YAML."""

    def __init__(self, line: int, message: str) -> None:
        super().__init__(message)
        self.line, self.message = line, message


def _events(text: str) -> Iterator[Any]:
    """PyYAML's events, with translated errors; by the C parser where the package has one."""
    loader = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
    try:
        yield from yaml.parse(text, Loader=loader)
    except yaml.MarkedYAMLError as error:
        mark = error.problem_mark or error.context_mark
        line, column = (mark.line + 1, mark.column + 1) if mark else (1, 1)
        problem = " ".join(f"{error.context or ''} {error.problem or ''}".split())
        raise _Unreadable(line, f"not YAML at column {column}: {problem}{_tab_hint(text, line)}") from error
    except yaml.reader.ReaderError as error:
        line = text.count("\n", 0, error.position) + 1
        raise _Unreadable(line, f"not YAML: character #x{error.character:04x} is not allowed; remove it") from error
    except UnicodeEncodeError as error:
        line = text.count("\n", 0, error.start) + 1
        raise _Unreadable(line, "not UTF-8; save the text as UTF-8") from error


def _tab_hint(text: str, line: int) -> str:
    """A hint at tabs, the usual invisible error in YAML."""
    near = "".join(text.splitlines()[max(line - 2, 0) : line])
    return "; indent with spaces, not tabs" if "\t" in near else ""
