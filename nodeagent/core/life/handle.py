"""A value that stands for an object that is built later, and built anew after each crash.

Owns the reference. Whoever holds the handle keeps it for the life of the process.
Refuses to wait: a call while no object is there fails at once, with the error of the handle's maker.
"""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Generic, TypeVar

T = TypeVar("T")


class Handle(Generic[T]):
    """The object of now, if any."""

    def __init__(self, describe_absence: Callable[[], Exception]) -> None:
        """`describe_absence` makes the error for a call while no object is there."""
        self._describe_absence = describe_absence
        self.value: T | None = None
        """The object; `None` while there is none."""

    @contextmanager
    def filled(self, value: T) -> Iterator[None]:
        """Lead to an object for as long as the block lasts."""
        self.value = value
        try:
            yield
        finally:
            self.value = None

    def get(self) -> T:
        """The object; raises the error of the handle's maker while there is none."""
        if self.value is None:
            raise self._describe_absence()
        return self.value
