"""A value that changes in bursts, for readers of the newest value rather than of each step.

Owns the time for which changes are gathered before delivery to a reader.
"""

from typing import Final, Generic, TypeVar

import anyio

T = TypeVar("T")

_NO_PAUSE_SECONDS: Final = 1e-4
"""A shorter pause is not worth a sleep, and may be the rounding error of a finished pause."""


class Gathered(Generic[T]):
    """The value; any number of readers."""

    def __init__(self, value: T) -> None:
        self.value = value
        """The present value; only `put` sets it."""
        self._changed_at, self._changed = 0.0, anyio.Event()

    def put(self, value: T) -> bool:
        """Set the value; `False` where the new value is equal."""
        if value == self.value:
            return False
        self.value, self._changed_at = value, anyio.current_time()
        self._changed.set()
        self._changed = anyio.Event()
        return True

    async def wait_other(self, known: T | None, window_seconds: float) -> T:
        """The value once different from `known`, with changes of the window gathered; at once for `None`."""
        began: float | None = None
        while True:
            began = None if known == self.value else self._changed_at if began is None else began
            passed = 0.0 if began is None else anyio.current_time() - began
            pause = decide_pause(known, self.value, passed, window_seconds)
            if pause == 0:
                return self.value
            with anyio.move_on_after(pause):
                await self._changed.wait()


def decide_pause(sent: object, wanted: object, changed_seconds_ago: float, window_seconds: float) -> float | None:
    """Seconds for which to gather further changes; `None` while the value is as sent, 0 to deliver now."""
    if sent is not None and sent == wanted:
        return None
    left = window_seconds - changed_seconds_ago
    return left if sent is not None and left > _NO_PAUSE_SECONDS else 0.0
