"""Somebody hears of the error that ends a block before it goes on its way.

Owns nothing. Refuses to be made of a generator, as `contextlib` would: that costs each pod that waits 4 µs a time.
"""

from collections.abc import Callable


class Hearing:
    """`with Hearing(hear):` calls `hear` with the error that leaves the block; it may raise another in its place."""

    __slots__ = ("_hear",)

    def __init__(self, hear: Callable[[Exception], None]) -> None:
        self._hear = hear

    def __enter__(self) -> None:
        pass

    def __exit__(self, kind: object, error: BaseException | None, trace: object) -> None:
        if isinstance(error, Exception):
            self._hear(error)
