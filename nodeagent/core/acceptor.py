"""Takes callers from a listening socket, a few in each turn of the event loop, and never spins when it cannot.

Apart from asyncio's own because that one, out of descriptors, tries and logs a hundred times at once, and a hundred
times as often at each retry: a million lines within the minute, and nothing else is done meanwhile.
"""

import asyncio
import socket
from collections.abc import Callable
from typing import Final

PER_TURN: Final = 4
"""How many are taken in one turn of the loop: the request of a connection is read some turns after it was accepted, and
fewer newer ones must have come until then than a listener has room for."""
PAUSE_SECONDS: Final = 1.0
"""Until the next attempt where none can be taken: the callers wait in the kernel's queue meanwhile."""


class Acceptor:
    """Reads one listening socket, which stays its owner's; belongs to the event loop's thread."""

    def __init__(
        self,
        listener: socket.socket,
        take: Callable[[socket.socket], None],
        on_failure: Callable[[OSError], None],
    ) -> None:
        """`take` is given each caller; `on_failure` is told of each attempt that failed, at most one a pause."""
        self._listener, self._take, self._on_failure = listener, take, on_failure
        self._loop = asyncio.get_running_loop()
        self._resume: asyncio.TimerHandle | None = None
        listener.settimeout(0)
        self._loop.add_reader(listener, self._accept)

    def close(self) -> None:
        """Take no more."""
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
