"""What travels on the bus: a value and where it came from.

Owns the record. Refuses to look inside the value.
"""

from typing import Any, Generic, TypeAlias, TypeVar

from msgspec import Struct

T = TypeVar("T")


class Envelope(Struct, Generic[T], frozen=True):
    """One thing published."""

    value: T
    key: str
    """Which of several states of this class; empty for unkeyed states and facts."""
    seq: int
    """Rises by one with everything published in this process."""
    time: float
    """Unix seconds."""
    source: str
    cause: int | None = None
    """The seq of what led to this."""
    lag: int = 0
    """Facts this listener lost just before this one."""
    retracted: bool = False
    """The state is no longer true; `value` is the last that was."""
    repeats: int = 0
    """In the history: how many like it, told between the first and this one, are counted here and no longer kept."""


Cause: TypeAlias = int | Envelope[Any] | None
"""What led to something: an envelope, its seq, or nothing known."""


def cause_of(cause: Cause) -> int | None:
    """The seq behind any form of cause."""
    return cause.seq if isinstance(cause, Envelope) else cause
