"""Accepts connections from a listening socket, a few in each turn of the event loop, and pauses after a failure.

Replaces asyncio's accept loop: out of descriptors, asyncio tries and logs a hundred times at once, and a hundred times
as often at each retry: a million lines within the minute, without any other work done meanwhile.
"""

import asyncio
import socket
from collections.abc import Callable
from typing import Final

PER_TURN: Final = 4
"""Connections accepted in one turn of the loop: a request is read some turns after its connection was accepted, and
fewer newer connections must have come until then than a listener has room for."""
PAUSE_SECONDS: Final = 1.0
"""Pause after a failed attempt; connections wait in the kernel's queue meanwhile."""


class Acceptor:
    """Reads one listening socket, still owned by the caller; belongs to the event loop's thread."""

    def __init__(
        self,
        listener: socket.socket,
        take: Callable[[socket.socket], None],
        on_failure: Callable[[OSError], None],
    ) -> None:
        """`take` gets each connection; `on_failure` gets the error of each failed attempt, at most one a pause."""
        self._listener, self._take, self._on_failure = listener, take, on_failure
        self._loop = asyncio.get_running_loop()
        self._resume: asyncio.TimerHandle | None = None
        listener.settimeout(0)
        self._loop.add_reader(listener, self._accept)

    def close(self) -> None:
        """Accept no more connections."""
        if self._resume is not None:
            self._resume.cancel()
        self._loop.remove_reader(self._listener)

    def _accept(self) -> None:
        for _ in range(PER_TURN):
            try:
                caller, _address = self._listener.accept()
            except (BlockingIOError, InterruptedError, ConnectionAbortedError):
                return
            except OSError as error:
                # Out of descriptors or memory, or the network's own trouble: the socket stays readable all the while.
                self._loop.remove_reader(self._listener)
                self._resume = self._loop.call_later(PAUSE_SECONDS, self._go_on)
                self._on_failure(error)
                return
            caller.settimeout(0)
            self._take(caller)

    def _go_on(self) -> None:
        self._resume = None
        self._loop.add_reader(self._listener, self._accept)
