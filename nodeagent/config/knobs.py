"""How a setting is declared: one line of `knob(...)` in a `Section` carries all that is known about it.

The declaration is the single source: reading, complaints, reload, the JSON Schema, the reference page and the example
file all come from it, so none of them can drift.
Owns the declaration machinery; knows no setting and reads nothing from outside the process.
"""

from collections.abc import Callable, Iterable
from collections.abc import Mapping as MappingOf
from typing import Any, Final, Protocol, TypeVar, cast, dataclass_transform

from msgspec import Struct, StructMeta

from nodeagent.config.errors import Problem
from nodeagent.config.tree import Mapping, Node, Origin, Scalar, shorten
from nodeagent.model import nearest

T = TypeVar("T")
T_co = TypeVar("T_co", covariant=True)


class RejectedError(Exception):
    """A value was refused and the complaint is already noted; carries nothing and never leaves this package."""


class Findings:
    """What one reading of a tree has found so far: complaints, refused places, and where each value came from."""

    def __init__(self) -> None:
        self.problems: list[Problem] = []
        self.refused: set[str] = set()
        self.origins: dict[str, Origin] = {}


class Place:
    """A spot in the configuration, by path, to which complaints are pinned."""

    def __init__(self, findings: Findings, path: str = "", *, secret: bool = False) -> None:
        self.findings, self.path, self.secret = findings, path, secret

    def key(self, name: str, *, secret: bool = False) -> "Place":
        """The place one key further in."""
        return Place(self.findings, f"{self.path}.{name}" if self.path else name, secret=secret or self.secret)

    def item(self, index: int) -> "Place":
        """The place of one list item."""
        return Place(self.findings, f"{self.path}[{index}]", secret=self.secret)

    def wrong(self, node: Node, wanted: str) -> RejectedError:
        """Note that the value is not what is wanted; raise what this returns."""
        shown = "***" if self.secret else shorten(node)
        return self.refuse(node.origin, f"value {shown} is refused; give {wanted}")

    def refuse(self, origin: Origin, message: str) -> RejectedError:
        """Note a complaint in full; raise what this returns."""
        self.findings.problems.append(Problem(origin, self.path, message))
        self.findings.refused.add(self.path)
        return RejectedError()


class Kind(Protocol[T]):
    """What values a setting takes: reads them, writes them back, and describes itself."""

    @property
    def label(self) -> str:
        """The type as the reference page names it."""

    def read(self, node: Node, place: Place) -> T:
        """The value that was written, or RejectedError after noting every complaint at its place."""

    def plain(self, value: T) -> object:
        """The value as YAML and JSON can hold it; reading that back gives the same value."""

    def json_schema(self) -> dict[str, object]:
        """The JSON Schema (2020-12) of what is accepted."""


class Knob(Struct, frozen=True):
    """All that is known about one setting."""

    kind: Kind[Any]
    what: str
    why: str
    default: Any
    reload: bool
    secret: bool
    also_env: str
    makes_part: Callable[[Any], bool] | None = None

    @property
    def required(self) -> bool:
        """Whether leaving the key out is an error."""
        return self.default is REQUIRED


class _Required:
    """The type of the mark that a key has no default."""


REQUIRED: Final = _Required()


def knob(
    kind: Kind[T],
    default: T,
    what: str,
    why: str = "",
    *,
    reload: bool = False,
    secret: bool = False,
    also_env: str = "",
    makes_part: Callable[[T], bool] | None = None,
) -> T:
    """Declare a setting; the type checker sees its value, the section keeps the rest.

    Args:
        kind: the values it takes.
        default: the value when nobody says anything.
        what: what it does, for the person who sets it.
        why: the reason for the default.
        reload: whether a running agent takes a new value on SIGHUP.
        secret: whether the value is shown as `***`.
        also_env: a foreign environment variable that sets it too, because clusters already use it.
        makes_part: for which values there must be a part of the agent that there is not otherwise; it is built at the
            start alone.
    """
    return cast("T", Knob(kind, what, why, default, reload, secret, also_env, makes_part))


def required(kind: Kind[T], what: str) -> T:
    """Declare a key that must be given."""
    return cast("T", Knob(kind, what, "", REQUIRED, reload=False, secret=False, also_env=""))


class _SectionMeta(StructMeta):
    """Puts the defaults where msgspec looks for them and the declarations where we do.

    A frozen dataclass would say the same in plain Python, at 17 ms of start-up for these sections against 1 ms.
    """

    def __new__(cls, name: str, bases: tuple[type, ...], namespace: dict[str, Any], **options: Any) -> Any:
        """Take the knobs out of the class body; `kw_only` is not inherited, so it is said for each class."""
        declared = {key: value for key, value in namespace.items() if isinstance(value, Knob)}
        for key, value in declared.items():
            if value.required:
                del namespace[key]
            else:
                namespace[key] = value.default
        made: Any = super().__new__(cls, name, bases, namespace, kw_only=True, **options)
        inherited = {key: value for base in bases for key, value in getattr(base, "__knobs__", {}).items()}
        made.__knobs__ = {**declared, **inherited}
        return made


@dataclass_transform(frozen_default=True, kw_only_default=True)
class Section(Struct, frozen=True, metaclass=_SectionMeta):
    """A frozen group of settings; subclasses declare them with `knob`."""


def knobs_of(section: type[Section]) -> MappingOf[str, Knob]:
    """The settings of a section, in the order of declaration."""
    return cast("MappingOf[str, Knob]", section.__knobs__)  # type: ignore[attr-defined]  # set by our metaclass


def is_absent(node: Node) -> bool:
    """Whether nothing was written: a key whose lines are all commented out counts as an empty section."""
    return isinstance(node, Scalar) and node.is_null


def read_section(kind: type[Section], node: Node, place: Place) -> Any:
    """Read a whole section, noting every complaint; a refused value stands at its default so that the rest is judged.

    Raises RejectedError only where no section can be made at all: not a mapping, or a required key missing.
    """
    if is_absent(node):
        node = Mapping({}, node.origin, {})
    if not isinstance(node, Mapping):
        raise place.wrong(node, "a mapping of keys")
    knobs = knobs_of(kind)
    for key in node.entries:
        if key not in knobs:
            place.key(key).refuse(node.key_origins[key], f"unknown key{suggest(key, knobs)}")
    values: dict[str, Any] = {}
    complete = True
    for name, declared in knobs.items():
        try:
            if name in node.entries:
                values[name] = _read_knob(declared, node.entries[name], place.key(name, secret=declared.secret))
            elif declared.required:
                raise place.key(name).refuse(node.origin, f"the key is missing; give {declared.kind.label}")
        except RejectedError:
            complete = complete and not declared.required
    if not complete:
        raise RejectedError
    return kind(**values)


def _read_knob(declared: Knob, node: Node, place: Place) -> Any:
    value = declared.kind.read(node, place)
    place.findings.origins[place.path] = node.origin
    return value


def suggest(key: str, known: Iterable[str]) -> str:
    """The remedy for a misspelt name: the nearest known one, or all of them."""
    return nearest.suggest(key, known) or f"; known here: {', '.join(known)}"
