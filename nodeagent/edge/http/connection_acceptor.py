"""Lets connections in, counts them, and shows out those that keep a request waiting.

Owns accepted sockets until they say something, which is when they become connections: one that says nothing costs a
descriptor and little else. Owns also the time by which a request's line and headers must be here. Who makes room when
it is full is `crowd`'s decision; what a connection says is the server's business.
"""

import asyncio
import contextlib
import socket
import ssl
from collections.abc import Callable
from functools import partial
from typing import Final

from nodeagent.core.acceptor import Acceptor
from nodeagent.edge.http.capacity import Capacity
from nodeagent.edge.http.connection import ProblemHandler, ProblemServer, render_raw
from nodeagent.edge.http.crowd import Crowd, find_party

TLS_CLOSE_SECONDS: Final = 1.0
SHED: Final = 8
"""Connections closed when descriptors run out all the same: others need some too, not only the next caller."""
_FULL: Final = render_raw(503, "too many connections", "try again", headers={"Retry-After": "1"})
_LATE: Final = render_raw(408, "the request did not arrive in time")
_HEADER_BYTES: Final = 16384
"""More than a header may have; what is looked at before anybody reads it."""


class _Visit:
    """One accepted socket, what became of it, and what its connection tells of itself."""

    __slots__ = ("caller", "ends", "entering", "entrance", "handler", "spoke")

    def __init__(self, entrance: "Entrance", caller: socket.socket) -> None:
        self.entrance, self.caller = entrance, caller
        self.handler: ProblemHandler | None = None
        self.entering: asyncio.Task[None] | None = None
        self.spoke = False
        """Whether anything has come that could be the beginning of a request."""
        self.ends = True

    def hears(self, *, ends: bool) -> None:
        """Bytes have come."""
        self.ends = ends
        if not self.spoke:
            self.spoke = True
            self.entrance.begins(self)

    def serves(self) -> None:
        """A request is here, whole but for its body."""
        self.entrance.crowd.serve(self, self.entrance.now())

    def rests(self, *, is_read: bool) -> None:
        """Its answer is gone; what came after its request may be the beginning of the next."""
        self.spoke = is_read and not self.ends
        self.entrance.crowd.rest(self)
        if self.spoke:
            self.entrance.begins(self)

    def leaves(self) -> None:
        """The connection is gone."""
        self.entrance.crowd.leave(self)

    def show_out(self) -> None:
        """End it, wherever it is."""
        transport = self.handler.transport if self.handler is not None else None
        if transport is not None:
            transport.abort()
        elif self.entering is not None:
            self.entering.cancel()
        else:
            self.entrance.forget(self)
            self.caller.close()

    def call_time(self) -> None:
        """End it because its request is not here in time; who has begun one is told."""
        transport = self.handler.transport if self.handler is not None else None
        if self.handler is None or transport is None or not self.spoke:
            self.show_out()
        else:
            transport.write(_LATE)
            self.handler.force_close()


class Entrance:
    """The entrance of one listener; belongs to the event loop's thread."""

    def __init__(
        self,
        server: ProblemServer,
        capacity: Capacity,
        *,
        context: ssl.SSLContext | None,
        read_seconds: Callable[[], float],
        on_failure: Callable[[OSError], None],
    ) -> None:
        self.crowd = Crowd(capacity.total, capacity.each, self._has_asked)
        self._server, self._context = server, context
        self._read_seconds, self._on_failure = read_seconds, on_failure
        self._loop = asyncio.get_running_loop()
        self._silent: set[_Visit] = set()
        self._entering: set[asyncio.Task[None]] = set()
        self._acceptor: Acceptor | None = None
        self._next_look: asyncio.TimerHandle | None = None

    def open(self, listener: socket.socket) -> None:
        """Let callers in from now on."""
        self._acceptor = Acceptor(listener, self._take, self._shed)

    def close(self) -> None:
        """Let nobody in any more; who is in is the server's to end."""
        if self._acceptor is not None:
            self._acceptor.close()
        if self._next_look is not None:
            self._next_look.cancel()
        for visit in tuple(self._silent):
            visit.show_out()
        for entering in self._entering:
            entering.cancel()

    def now(self) -> float:
        """The loop's time."""
        return self._loop.time()

    def begins(self, visit: _Visit) -> None:
        """The first bytes of a request have come."""
        self.crowd.begin(visit, self.now())
        self._look_later()

    def forget(self, visit: _Visit) -> None:
        """No longer wait for its first word."""
        self._silent.discard(visit)
        self._loop.remove_reader(visit.caller)

    # Who comes in -------------------------------------------------------------------------------------------------

    def _take(self, caller: socket.socket) -> None:
        visit = _Visit(self, caller)
        try:
            address = caller.getpeername()
        except OSError:  # gone again
            caller.close()
            return
        party = find_party(address[0]) if isinstance(address, tuple) else ""
        verdict = self.crowd.arrive(visit, party, self.now())
        if verdict.leaves is not None:
            verdict.leaves.show_out()
        if not verdict.is_welcome:
            self._refuse(caller)
            return
        self._look_later()
        if _peek(caller) is None:
            self._silent.add(visit)
            self._loop.add_reader(caller, self._hears_first, visit)
        else:
            self._let_in(visit)

    def _hears_first(self, visit: _Visit) -> None:
        self.forget(visit)
        self._let_in(visit)

    def _let_in(self, visit: _Visit) -> None:
        if _peek(visit.caller) == b"":  # gone without a word
            self.crowd.leave(visit)
            visit.caller.close()
            return
        if self._has_asked(visit):
            self.crowd.protect(visit, self.now())
        visit.entering = self._loop.create_task(self._enter(visit))
        self._entering.add(visit.entering)
        visit.entering.add_done_callback(partial(self._has_entered, visit))

    def _has_entered(self, visit: _Visit, entering: asyncio.Task[None]) -> None:
        self._entering.discard(entering)
        if visit.handler is None:  # shown out before it was a connection's: nobody else would close it
            visit.caller.close()

    def _has_asked(self, visit: _Visit) -> bool:
        """Whether a whole header is here; encrypted, nobody knows."""
        return self._context is None and b"\r\n\r\n" in (_peek(visit.caller) or b"")

    async def _enter(self, visit: _Visit) -> None:
        def make() -> ProblemHandler:
            visit.handler = self._server.make(visit)
            return visit.handler

        limits = (
            {"ssl_handshake_timeout": self._read_seconds(), "ssl_shutdown_timeout": TLS_CLOSE_SECONDS}
            if self._context is not None
            else {}
        )
        try:
            await self._loop.connect_accepted_socket(make, visit.caller, ssl=self._context, **limits)
        except (OSError, EOFError):  # a handshake that came to nothing; ssl.SSLError is an OSError
            self.crowd.leave(visit)

    def _refuse(self, caller: socket.socket) -> None:
        if self._context is None:
            with contextlib.suppress(OSError):
                # What has come is read first: closing on it would reset the connection before the answer is read.
                with contextlib.suppress(BlockingIOError):
                    caller.recv(_HEADER_BYTES)
                caller.send(_FULL)
        caller.close()

    # Who has to go ------------------------------------------------------------------------------------------------

    def _look_later(self) -> None:
        if self._next_look is not None:
            return
        debt = self.crowd.oldest_debt()
        if debt is not None:
            self._next_look = self._loop.call_at(debt[1] + self._read_seconds(), self._look)

    def _look(self) -> None:
        self._next_look = None
        latest = self.now() - self._read_seconds()
        while (debt := self.crowd.oldest_debt()) is not None and debt[1] <= latest:
            self.crowd.leave(debt[0])
            debt[0].call_time()
        self._look_later()

    def _shed(self, error: OSError) -> None:
        self._on_failure(error)
        for _ in range(SHED):
            visit = self.crowd.longest(self.now())
            if visit is None:
                return
            visit.show_out()


def _peek(caller: socket.socket) -> bytes | None:
    """What has come and is not read yet: nothing where nothing has, empty where the other side has closed."""
    try:
        return caller.recv(_HEADER_BYTES, socket.MSG_PEEK)
    except BlockingIOError:
        return None
    except OSError:  # reset: as good as closed
        return b""
