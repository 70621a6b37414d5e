"""Something that may be worked out before it is known whether it is wanted, and is worked out then at the latest.

Owns the value.
Refuses to fail early: what cannot be worked out ahead is tried again where it is wanted, and fails there.
"""

from collections.abc import Callable
from contextlib import suppress
from typing import Generic, TypeVar

T = TypeVar("T")


class Prepared(Generic[T]):
    """For work that has no effect of its own, because it may be done in vain or, after an error, twice."""

    __slots__ = ("_made", "_make")

    def __init__(self, make: Callable[[], T]) -> None:
        self._make = make
        self._made: tuple[T] | None = None

    def prepare(self) -> None:
        """Work it out now."""
        with suppress(Exception):  # raised by `take`, where somebody can hear it
            self._made = (self._make(),)

    def take(self) -> T:
        """What was worked out, or is now."""
        return self._make() if self._made is None else self._made[0]
