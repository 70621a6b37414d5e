"""How a setting is declared: one `knob(...)` in a `Section` holds all facts about the setting.

The declaration is the single source: reading, problems, reload, the JSON Schema, the reference page and the example
file are all derived, so none can drift.
Owns the declaration machinery; knows no setting and reads no input from outside the process.
"""

from collections.abc import Callable, Iterable
from collections.abc import Mapping as MappingOf
from typing import Any, Final, Protocol, TypeVar, cast, dataclass_transform

from msgspec import Struct, StructMeta

from nodeagent.config.errors import Problem
from nodeagent.config.tree import Mapping, Node, Origin, Scalar, shorten
from nodeagent.model import wording

T = TypeVar("T")
T_co = TypeVar("T_co", covariant=True)


class RejectedError(Exception):
    """A value was refused and the problem is noted already; has no content and never leaves the package."""


class Findings:
    """The findings of one reading of a tree: problems, refused places, and the origin of each value."""

    def __init__(self) -> None:
        self.problems: list[Problem] = []
        self.refused: set[str] = set()
        self.origins: dict[str, Origin] = {}


class Place:
    """A place in the configuration, by path, to which problems are attached."""

    def __init__(self, findings: Findings, path: str = "", *, secret: bool = False) -> None:
        self.findings, self.path, self.secret = findings, path, secret

    def key(self, name: str, *, secret: bool = False) -> "Place":
        """The place one key further in."""
        return Place(self.findings, f"{self.path}.{name}" if self.path else name, secret=secret or self.secret)

    def item(self, index: int) -> "Place":
        """The place of one list item."""
        return Place(self.findings, f"{self.path}[{index}]", secret=self.secret)

    def wrong(self, node: Node, wanted: str) -> RejectedError:
        """Note a value other than wanted; the caller raises the returned error."""
        shown = "***" if self.secret else shorten(node)
        return self.refuse(node.origin, f"value {shown} is refused; give {wanted}")

    def refuse(self, origin: Origin, message: str) -> RejectedError:
        """Note a problem with its message; the caller raises the returned error."""
        self.findings.problems.append(Problem(origin, self.path, message))
        self.findings.refused.add(self.path)
        return RejectedError()


class Kind(Protocol[T]):
    """The kind of a setting's values: reads and writes values, with a label and a JSON Schema."""

    @property
    def label(self) -> str:
        """The name of the kind on the reference page."""

    def read(self, node: Node, place: Place) -> T:
        """The written value, or RejectedError after noting every problem at its place."""

    def plain(self, value: T) -> object:
        """The value in types of YAML and JSON; reading the result gives the same value."""

    def json_schema(self) -> dict[str, object]:
        """The JSON Schema (2020-12) of accepted values."""


class Knob(Struct, frozen=True):
    """The declaration of one setting."""

    kind: Kind[Any]
    what: str
    why: str
    default: Any
    reload: bool
    secret: bool
    also_env: str
    makes_part: Callable[[Any], int] | None = None

    @property
    def required(self) -> bool:
        """Whether leaving the key out is an error."""
        return self.default is REQUIRED


class _Required:
    """The type of the mark for a key without a default."""


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
    makes_part: Callable[[T], int] | None = None,
) -> T:
    """Declare a setting; the type checker sees the value, the section keeps the rest.

    Args:
        kind: The kind of accepted values.
        default: The value when the setting is given nowhere.
        what: The effect, for users.
        why: The reason for the default.
        reload: Whether a running agent takes a new value on SIGHUP.
        secret: Whether the value is shown as `***`.
        also_env: A foreign environment variable for the setting, in use in clusters already.
        makes_part: How many components of the agent a value needs; they are built only at the start.
    """
    return cast("T", Knob(kind, what, why, default, reload, secret, also_env, makes_part))


def required(kind: Kind[T], what: str) -> T:
    """Declare a key that must be given."""
    return cast("T", Knob(kind, what, "", REQUIRED, reload=False, secret=False, also_env=""))


class _SectionMeta(StructMeta):
    """Hands the defaults to msgspec and keeps the declarations in `__knobs__`.

    A frozen dataclass would do in plain Python, at 17 ms of start-up for the sections against 1 ms.
    """

    def __new__(cls, name: str, bases: tuple[type, ...], namespace: dict[str, Any], **options: Any) -> Any:
        """Take the knobs out of the class body; `kw_only` is not inherited, so set for each class."""
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
    """A frozen group of settings; subclasses declare settings with `knob`."""


def knobs_of(section: type[Section]) -> MappingOf[str, Knob]:
    """The settings of a section, in the order of declaration."""
    return cast("MappingOf[str, Knob]", section.__knobs__)  # type: ignore[attr-defined]  # set by the metaclass


def is_absent(node: Node) -> bool:
    """Whether a value is missing: a key with only commented-out lines counts as an empty section."""
    return isinstance(node, Scalar) and node.is_null


def read_section(kind: type[Section], node: Node, place: Place) -> Any:
    """Read a whole section, noting every problem; a refused value is replaced by its default to judge the rest.

    Raises RejectedError only where no section can be made: not a mapping, or a missing required key.
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
    """The remedy for a misspelt name: the nearest known name, or all known names."""
    return wording.suggest(key, known) or f"; known here: {', '.join(known)}"
