"""Calls a function with the error that ends a block before the error is passed on.

Owns nothing. Refuses to be made of a generator, as in `contextlib`: a generator costs each waiting pod 4 µs a time.
"""

from collections.abc import Callable
from typing import Generic, TypeVar

E = TypeVar("E", bound=Exception)


class Hearing(Generic[E]):
    """`with` calls `hear` with an error of this kind that leaves the block; `hear` may raise another error instead."""

    __slots__ = ("_hear", "_kind")

    def __init__(self, kind: type[E], hear: Callable[[E], None]) -> None:
        self._kind, self._hear = kind, hear

    def __enter__(self) -> None:
        pass

    def __exit__(self, kind: object, error: BaseException | None, trace: object) -> None:
        if isinstance(error, self._kind):
            self._hear(error)
