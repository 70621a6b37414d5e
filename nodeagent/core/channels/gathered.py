"""A value that changes in bursts, for readers who want its newest state and not each step there.

Owns for how long changes are gathered before a reader is given them.
"""

from typing import Final, Generic, TypeVar

import anyio

T = TypeVar("T")

_NO_PAUSE_SECONDS: Final = 1e-4
"""Less is not worth a sleep, and may be what rounding leaves of one that is over."""


class Gathered(Generic[T]):
    """The value; any number of readers."""

    def __init__(self, value: T) -> None:
        self._value, self._changed_at, self._changed = value, 0.0, anyio.Event()

    @property
    def value(self) -> T:
        """What it is now."""
        return self._value

    def put(self, value: T) -> bool:
        """Have another value from now on; False where it is an equal one."""
        if value == self._value:
            return False
        self._value, self._changed_at = value, anyio.current_time()
        self._changed.set()
        self._changed = anyio.Event()
        return True

    async def wait_other(self, known: T | None, window_seconds: float) -> T:
        """The value as soon as it differs from what is known, changes gathered for so long; at once for no value."""
        began: float | None = None
        while True:
            began = None if known == self._value else self._changed_at if began is None else began
            passed = 0.0 if began is None else anyio.current_time() - began
            pause = decide_pause(known, self._value, passed, window_seconds)
            if pause == 0:
                return self._value
            with anyio.move_on_after(pause):
                await self._changed.wait()


def decide_pause(sent: object, wanted: object, changed_seconds_ago: float, window_seconds: float) -> float | None:
    """How long to go on gathering changes; `None` when there is nothing to give, and nothing to wait for at first."""
    if sent is not None and sent == wanted:
        return None
    left = window_seconds - changed_seconds_ago
    return left if sent is not None and left > _NO_PAUSE_SECONDS else 0.0
