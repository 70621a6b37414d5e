"""Requests waiting for room: first come, first served.

Owns the order and the bound: requests in progress never weigh more than the room; a request waiting too long is
refused.
"""

from collections import deque
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import NamedTuple

import anyio

from nodeagent.edge.http.errors import ServerBusy


class _Waiting(NamedTuple):
    weight: int
    admitted: anyio.Event


class RequestQueue:
    """Requests by weight: 1, or the bytes of the body."""

    def __init__(self, room: Callable[[], int], wait_seconds: float) -> None:
        """A request heavier than the whole `room` is served alone."""
        self._room, self._wait_seconds = room, wait_seconds
        self._taken = 0
        self._waiting: deque[_Waiting] = deque()

    @asynccontextmanager
    async def hold(self, weight: int = 1) -> AsyncIterator[None]:
        """Room for a request inside the block.

        Raises:
            ServerBusy: there was no room in time.
        """
        await self._enter(weight)
        try:
            yield
        finally:
            self._taken -= weight
            self._admit()

    async def _enter(self, weight: int) -> None:
        if not self._waiting and self._fits(weight):
            self._taken += weight
            return
        waiting = _Waiting(weight, anyio.Event())
        self._waiting.append(waiting)
        try:
            with anyio.move_on_after(self._wait_seconds):
                await waiting.admitted.wait()
        except BaseException:
            self._leave(waiting)
            raise
        if not waiting.admitted.is_set():
            self._leave(waiting)
            raise ServerBusy

    def _leave(self, waiting: _Waiting) -> None:
        """Withdraw a request that was not admitted, or was admitted in the moment of the cancellation."""
        if waiting.admitted.is_set():
            self._taken -= waiting.weight
        else:
            self._waiting.remove(waiting)
        self._admit()

    def _admit(self) -> None:
        while self._waiting and self._fits(self._waiting[0].weight):
            first = self._waiting.popleft()
            self._taken += first.weight
            first.admitted.set()

    def _fits(self, weight: int) -> bool:
        return not self._taken or self._taken + weight <= self._room()
