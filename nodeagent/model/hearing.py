"""Somebody hears of the error that ends a block before it goes on its way.

Owns nothing. Refuses to be made of a generator, as `contextlib` would: that costs each pod that waits 4 µs a time.
"""

from collections.abc import Callable
from typing import Generic, TypeVar

E = TypeVar("E", bound=Exception)


class Hearing(Generic[E]):
    """`with` calls `hear` with an error of this kind that leaves the block; it may raise another in its place."""

    __slots__ = ("_hear", "_kind")

    def __init__(self, kind: type[E], hear: Callable[[E], None]) -> None:
        self._kind, self._hear = kind, hear

    def __enter__(self) -> None:
        pass

    def __exit__(self, kind: object, error: BaseException | None, trace: object) -> None:
        if isinstance(error, self._kind):
            self._hear(error)
