"""Mailboxes for one consumer: the newest value only, or a bounded queue without the oldest items.

Owns the values waiting to be taken, and the waking of the consumer. Putting never blocks and never fails.
Refuses a second consumer: two tasks waiting on one mailbox is a mistake in the caller.
All mailboxes belong to the event loop's thread.
"""

import asyncio
from collections import deque
from collections.abc import AsyncIterable, Hashable
from contextlib import AbstractContextManager
from typing import Generic, Protocol, TypeVar

K = TypeVar("K", bound=Hashable)
T = TypeVar("T")
T_co = TypeVar("T_co", covariant=True)


class Waker:
    """A wake-up for one sleeper; an early wake-up is remembered.

    A plain future rather than an anyio event, because a bus publish wakes many readers at once:
    8 watchers cost about 4 µs with a future and about three times as much with one event made per wait.
    """

    __slots__ = ("_future", "_woken")

    def __init__(self) -> None:
        self._future: asyncio.Future[None] | None = None
        self._woken = False

    def wake(self) -> None:
        """Let the sleeper go on, now or at the next wait."""
        self._woken = True
        future = self._future
        if future is not None and not future.done():
            future.set_result(None)

    async def wait(self) -> None:
        """Return when woken since the last return."""
        if not self._woken:
            if self._future is not None:
                raise RuntimeError("two tasks wait on one mailbox; give each its own")
            self._future = asyncio.get_running_loop().create_future()
            try:
                await self._future
            finally:
                self._future = None
        self._woken = False

    async def follow(self, changes: AbstractContextManager[AsyncIterable[object]]) -> None:
        """Wake at each of the changes, unread, until cancelled: the sleeper reads the whole state."""
        with changes as each:
            async for _ in each:
                self.wake()


class Mailbox(Protocol[T_co]):
    """The reader's side of both kinds of mailbox."""

    def __len__(self) -> int: ...

    def take_nowait(self) -> T_co | None:
        """The next value, or `None` for an empty mailbox."""
        ...

    async def take(self) -> T_co:
        """The next value, as soon as there is a value."""
        ...


class Slots(Waker, Generic[K, T]):
    """The newest value of each key; keys are taken in the order of their first untaken value."""

    __slots__ = ("_fresh",)

    def __init__(self) -> None:
        super().__init__()
        self._fresh: dict[K, T] = {}

    def __len__(self) -> int:
        return len(self._fresh)

    def put_nowait(self, key: K, value: T) -> None:
        """Replace the waiting value of `key`."""
        self._fresh[key] = value
        if not self._woken:  # a woken reader costs a publish nothing
            self.wake()

    def take_nowait(self) -> T | None:
        """The longest waiting value, or `None` for an empty mailbox."""
        fresh = self._fresh
        return fresh.pop(next(iter(fresh))) if fresh else None

    async def take(self) -> T:
        """The longest waiting value, as soon as there is a value."""
        while (value := self.take_nowait()) is None:
            await self.wait()
        return value


class BoundedQueue(Waker, Generic[T]):
    """First in, first out, up to a limit; past the limit the oldest value goes and is counted."""

    __slots__ = ("_items", "_limit", "_lost")

    def __init__(self, limit: int) -> None:
        super().__init__()
        self._items: deque[T] = deque()
        self._limit = limit
        self._lost = 0

    def __len__(self) -> int:
        return len(self._items)

    def put_nowait(self, value: T) -> bool:
        """Append a value; `False` when the oldest value had to go."""
        items = self._items
        items.append(value)
        self.wake()
        if len(items) <= self._limit:
            return True
        items.popleft()
        self._lost += 1
        return False

    def take_nowait(self) -> tuple[T, int] | None:
        """The oldest value and the number lost just before, or `None` for an empty queue."""
        if not self._items:
            return None
        lost, self._lost = self._lost, 0
        return self._items.popleft(), lost

    async def take(self) -> tuple[T, int]:
        """The oldest value and the number lost just before, as soon as there is a value."""
        while (item := self.take_nowait()) is None:
            await self.wait()
        return item
