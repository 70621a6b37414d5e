"""Accepts a listener's connections, as far as the table has room.

Owns the refusal of further connections, and which connections are closed where descriptors run out all the same.
"""

import asyncio
import contextlib
import socket
import ssl
from collections.abc import Callable
from typing import Final

from aiohttp.web_server import Server

from nodeagent.core.acceptor import Acceptor
from nodeagent.edge.http.capacity import Capacity
from nodeagent.edge.http.connection import Connection, render_raw
from nodeagent.edge.http.connection_table import ConnectionTable

CLOSED_AT_ONCE: Final = 8
"""Connections closed when descriptors run out: other code needs descriptors too, not only the next connection."""
_FULL: Final = render_raw(503, "too many connections", "try again", headers={"Retry-After": "1"})
_HEADER_BYTES: Final = 16384
"""More than the permitted size of a header."""


class ConnectionAcceptor:
    """The connections of a listener; belongs to the event loop's thread."""

    def __init__(
        self,
        server: Server,
        listener: socket.socket,
        capacity: Capacity,
        *,
        context: ssl.SSLContext | None,
        read_seconds: Callable[[], float],
        on_failure: Callable[[OSError], None],
    ) -> None:
        self._table: ConnectionTable[Connection] = ConnectionTable(capacity.total, capacity.each)
        self._server, self._context = server, context
        self._read_seconds, self._on_failure = read_seconds, on_failure
        self._loop = asyncio.get_running_loop()
        self._acceptor = Acceptor(listener, self._take, self._make_room)

    def close(self) -> None:
        """Take no more connections; ending established connections is up to the server."""
        self._acceptor.close()
        for connection in self._table:
            if connection.transport is None:
                connection.abort()

    def _take(self, accepted: socket.socket) -> None:
        try:
            name = accepted.getpeername()
        except OSError:  # gone again
            accepted.close()
            return
        address = name[0] if isinstance(name, tuple) else ""
        if self._table.is_full(address):
            oldest = self._table.choose(self._loop.time(), address)
            if oldest is None:
                self._refuse(accepted)
                return
            oldest.abort()
        connection = Connection(self._server, accepted, self._table, self._read_seconds)
        self._table.add(connection, address)
        connection.open(self._context)

    def _refuse(self, accepted: socket.socket) -> None:
        if self._context is None:
            with contextlib.suppress(OSError):
                # Received bytes are read first: closing over unread bytes would reset the connection before the answer.
                with contextlib.suppress(BlockingIOError):
                    accepted.recv(_HEADER_BYTES)
                accepted.send(_FULL)
        accepted.close()

    def _make_room(self, error: OSError) -> None:
        self._on_failure(error)
        for _ in range(CLOSED_AT_ONCE):
            oldest = self._table.choose(self._loop.time())
            if oldest is None:
                return
            oldest.abort()
