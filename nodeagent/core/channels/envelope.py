"""An envelope of the bus: a value with its origin.

Owns the record. Refuses to look inside the value.
"""

from typing import Any, Generic, TypeAlias, TypeVar

from msgspec import Struct

T = TypeVar("T")


class Envelope(Struct, Generic[T], frozen=True):
    """One published state or fact."""

    value: T
    key: str
    """The key among several states of the class; empty for unkeyed states and facts."""
    seq: int
    """Rises by one with each envelope of the process."""
    time: float
    """Unix seconds."""
    source: str
    cause: int | None = None
    """The seq of the cause."""
    lag: int = 0
    """Facts lost by the listener just before this fact."""
    retracted: bool = False
    """Whether the state was retracted; `value` is the last value."""
    repeats: int = 0
    """In the history: the number of equal facts between the first and this fact, counted and no longer kept."""

    @property
    def type_name(self) -> str:
        """The name of the value's type for users."""
        return name_type(type(self.value))


def name_type(kind: type) -> str:
    """The name of a type of events for users: `shown_as`, where the code has another name for the class."""
    name: str = getattr(kind, "shown_as", kind.__name__)
    return name


Cause: TypeAlias = int | Envelope[Any] | None
"""A cause: an envelope, the seq of an envelope, or `None` for unknown."""


def cause_of(cause: Cause) -> int | None:
    """The seq behind any form of cause."""
    return cause.seq if isinstance(cause, Envelope) else cause
