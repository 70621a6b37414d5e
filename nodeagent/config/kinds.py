"""Kinds of single values: truth values, numbers, words, text, paths, addresses.

Every kind reads the text as written and returns the value or names the wanted form.
Owns the scalar kinds; lists, maps and nested sections are in `compound`.
"""

import re
from pathlib import Path
from typing import ClassVar, Final, Generic, TypeVar

from msgspec import Struct

from nodeagent.config.knobs import Kind, Place
from nodeagent.config.tree import Node, Scalar

T = TypeVar("T")
W = TypeVar("W", bound=str)

TRUE_WORDS = frozenset({"true", "yes", "on"})
FALSE_WORDS = frozenset({"false", "no", "off"})
_WHOLE = re.compile(r"[-+]?[0-9]{1,19}")
_DECIMAL = re.compile(r"[-+]?([0-9]{1,19}(\.[0-9]*)?|\.[0-9]+)([eE][-+]?[0-9]{1,3})?")
_HOST = re.compile(r"[A-Za-z0-9]([A-Za-z0-9.-]*[A-Za-z0-9])?|[0-9A-Fa-f:.]*:[0-9A-Fa-f:.]*|")


def plain_text(node: Node) -> str | None:
    """The text of an unquoted scalar; `None` for other nodes."""
    return node.text if isinstance(node, Scalar) and not node.quoted else None


def plain_number(value: float) -> float:
    """Whole numbers without the empty fraction, and never in powers of ten."""
    return int(value) if value == int(value) else value


class AsWritten(Struct, frozen=True):
    """A kind whose values YAML and JSON have too."""

    def plain(self, value: object) -> object:
        """The value unchanged."""
        return value


class Flag(AsWritten, frozen=True):
    """A truth value."""

    label: ClassVar[str] = "true or false"

    def read(self, node: Node, place: Place) -> bool:
        """Read the words of YAML for truth values."""
        word = (plain_text(node) or "").lower()
        if word in TRUE_WORDS:
            return True
        if word in FALSE_WORDS:
            return False
        raise place.wrong(node, self.label)

    def json_schema(self) -> dict[str, object]:
        """A boolean."""
        return {"type": "boolean"}


class Whole(AsWritten, frozen=True):
    """A whole number within limits, both included."""

    low: int
    high: int

    @property
    def label(self) -> str:
        """The name of the kind in problems and on the reference page."""
        return f"a whole number from {self.low} to {self.high}"

    def read(self, node: Node, place: Place) -> int:
        """Decimal digits only: 010 is ten here, and 1:30 is not ninety."""
        text = plain_text(node) or ""
        if not _WHOLE.fullmatch(text) or not self.low <= int(text) <= self.high:
            raise place.wrong(node, self.label)
        return int(text)

    def json_schema(self) -> dict[str, object]:
        """An integer with its limits."""
        return {"type": "integer", "minimum": self.low, "maximum": self.high}


class Number(Struct, frozen=True):
    """A number within limits, both included; never infinite, never not-a-number."""

    low: float
    high: float

    @property
    def label(self) -> str:
        """The name of the kind in problems and on the reference page."""
        return f"a number from {plain_number(self.low)} to {plain_number(self.high)}"

    def read(self, node: Node, place: Place) -> float:
        """Decimal notation, with or without a fraction."""
        text = plain_text(node) or ""
        if not _DECIMAL.fullmatch(text) or not self.low <= float(text) <= self.high:
            raise place.wrong(node, self.label)
        return float(text)

    def plain(self, value: float) -> object:
        """Whole numbers without their empty fraction."""
        return plain_number(value)

    def json_schema(self) -> dict[str, object]:
        """A number with its limits."""
        return {"type": "number", "minimum": self.low, "maximum": self.high}


class OneOf(AsWritten, Generic[W], frozen=True):
    """One word of a fixed few."""

    words: tuple[W, ...]

    @property
    def label(self) -> str:
        """The name of the kind in problems and on the reference page."""
        return " or ".join(filter(None, (", ".join(self.words[:-1]), self.words[-1])))

    def read(self, node: Node, place: Place) -> W:
        """The word as written, also `true` as a word where listed."""
        text = node.text if isinstance(node, Scalar) else None
        for word in self.words:
            if word == text:
                return word
        raise place.wrong(node, self.label)

    def json_schema(self) -> dict[str, object]:
        """An enumeration; for the words true and false also the truth values of YAML."""
        truths = [word == "true" for word in self.words if word in {"true", "false"}]
        return {"enum": [*self.words, *truths]}


class Text(AsWritten, frozen=True):
    """One line of text that matches a pattern."""

    wanted: str = "one line of text"
    pattern: str = r".*"
    longest: int = 1024

    @property
    def label(self) -> str:
        """The name of the kind in problems and on the reference page."""
        return self.wanted

    def read(self, node: Node, place: Place) -> str:
        """Text as written, whether quoted or not; an absent value is the empty text."""
        if not isinstance(node, Scalar):
            raise place.wrong(node, self.label)
        text = "" if node.is_null else node.text
        if len(text) > self.longest or not text.isprintable() or not re.fullmatch(self.pattern, text):
            raise place.wrong(node, self.label)
        return text

    def json_schema(self) -> dict[str, object]:
        """A string with its pattern."""
        return {"type": "string", "pattern": f"^(?:{self.pattern})$", "maxLength": self.longest}


class Regex(AsWritten, frozen=True):
    """A regular expression that compiles."""

    label: ClassVar[str] = "a regular expression"

    def read(self, node: Node, place: Place) -> str:
        """The text of a regular expression that compiles."""
        text = Text(self.label).read(node, place)
        try:
            re.compile(text)
        except re.error as error:
            raise place.wrong(node, f"a regular expression that compiles ({error})") from error
        return text

    def json_schema(self) -> dict[str, object]:
        """A string in the format of the same name."""
        return {"type": "string", "format": "regex"}


class AbsolutePath(Struct, frozen=True):
    """An absolute path, because a daemon has no useful working directory."""

    label: ClassVar[str] = "an absolute path"

    def read(self, node: Node, place: Place) -> Path:
        """The path, not resolved: the file may not exist yet."""
        text = node.text if isinstance(node, Scalar) else ""
        if not text.startswith("/") or len(text) > 4096 or not text.isprintable():  # PATH_MAX
            raise place.wrong(node, self.label)
        # Two slashes in front are a root of their own to Python's paths, and below no other.
        return Path(f"/{text.lstrip('/')}")

    def plain(self, value: Path) -> object:
        """The text of the path."""
        return str(value)

    def json_schema(self) -> dict[str, object]:
        """A string with a leading slash."""
        return {"type": "string", "pattern": "^/"}


class Address(Struct, frozen=True):
    """A host and a TCP port to listen on; an empty host is every interface."""

    host: str
    port: int

    def __str__(self) -> str:
        return f"[{self.host}]:{self.port}" if ":" in self.host else f"{self.host}:{self.port}"


class ListenAddress(Struct, frozen=True):
    """`host:port`, `[ipv6]:port` or `:port`."""

    label: ClassVar[str] = "host:port, [ipv6]:port or :port"

    def read(self, node: Node, place: Place) -> Address:
        """Both halves, judged; port 0 lets the system choose."""
        text = node.text if isinstance(node, Scalar) else ""
        host, colon, port = text.rpartition(":")
        bracketed = host.startswith("[") and host.endswith("]")
        host = host[1:-1] if bracketed else host
        fits = bool(_HOST.fullmatch(host)) and (":" in host) == bracketed
        if not (colon and fits and re.fullmatch(r"[0-9]{1,5}", port) and int(port) <= 65535):
            raise place.wrong(node, f"{self.label}, with a port from 0 to 65535")
        return Address(host, int(port))

    def plain(self, value: Address) -> object:
        """The address as written."""
        return str(value)

    def json_schema(self) -> dict[str, object]:
        """A string with a port at the end."""
        return {"type": "string", "pattern": r"^(\[[0-9A-Fa-f:.]+\]|[A-Za-z0-9.-]*):[0-9]{1,5}$"}


class Maybe(Struct, Generic[T], frozen=True):
    """A value or `None`; `None` is written as an empty value, `null` or `""`."""

    kind: Kind[T]

    @property
    def label(self) -> str:
        """The name of the kind in problems and on the reference page."""
        return f"{self.kind.label}, or empty"

    def read(self, node: Node, place: Place) -> T | None:
        """The value, or `None` for an empty value."""
        if isinstance(node, Scalar) and (node.is_null or not node.text):
            return None
        return self.kind.read(node, place)

    def plain(self, value: T | None) -> object:
        """Null for `None`."""
        return None if value is None else self.kind.plain(value)

    def json_schema(self) -> dict[str, object]:
        """The kind, null or the empty text."""
        return {"anyOf": [self.kind.json_schema(), {"type": "null"}, {"const": ""}]}


QUALIFIED_NAME: Final = r"([a-z0-9]([a-z0-9.-]{0,251}[a-z0-9])?/)?[A-Za-z0-9]([A-Za-z0-9._-]{0,61}[A-Za-z0-9])?"
"""A name of Kubernetes with a domain in front, or without."""
LABEL_KEY: Final = Text("a label's key, such as example.com/team", QUALIFIED_NAME, 317)
NAMESPACE: Final = Text("a namespace", r"[a-z0-9]([a-z0-9-]*[a-z0-9])?", 63)
