"""A connection, from the moment of acceptance.

Owns the deadline for a request's line and headers, and the answer to bytes that are no request: problem details like
every other error, and no line in the log. Refuses to repeat more than the first line of a reason: the rest comes from
the client.
"""

import asyncio
import contextlib
import socket
import ssl
from collections.abc import Callable
from http import HTTPStatus
from typing import Final

from aiohttp.web_protocol import RequestHandler
from aiohttp.web_request import BaseRequest
from aiohttp.web_response import Response as WireResponse
from aiohttp.web_response import StreamResponse
from aiohttp.web_server import Server

from nodeagent.edge.http.connection_table import ConnectionTable
from nodeagent.edge.http.messages import SERVER
from nodeagent.edge.http.routes import render_problem

KEEPALIVE_SECONDS: Final = 75.0
"""How long a connection may rest between two requests: longer than any usual time between scrapes."""
LINGERING_SECONDS: Final = 1.0
"""How long the rest of a refused body is still read, so that the sender sees the refusal."""
TLS_CLOSE_SECONDS: Final = 1.0
REASON_LENGTH: Final = 120


class Connection(RequestHandler):
    """A connection, in the listener's table until closed."""

    __slots__ = ("_deadline", "_entering", "_has_begun", "_is_adopted", "_read_seconds", "_socket", "_table")

    def __init__(
        self,
        server: Server,
        accepted: socket.socket,
        table: ConnectionTable["Connection"],
        read_seconds: Callable[[], float],
    ) -> None:
        """`read_seconds` is how long the headers of a request may take."""
        loop = asyncio.get_running_loop()
        super().__init__(
            server,
            loop=loop,
            access_log=None,  # type: ignore[arg-type]  # the library's value for no log
            keepalive_timeout=KEEPALIVE_SECONDS,
            lingering_time=LINGERING_SECONDS,
        )
        self._socket, self._table, self._read_seconds = accepted, table, read_seconds
        self._deadline: asyncio.TimerHandle | None = None
        self._entering: asyncio.Task[None] | None = None
        self._is_adopted = self._has_begun = False
        self._set_deadline()

    def open(self, context: ssl.SSLContext | None) -> None:
        """Let bytes in, after a handshake where a context is given."""
        self._entering = self._loop.create_task(self._open(context))
        self._entering.add_done_callback(self._end_opening)

    def begin_answer(self) -> None:
        """Note a request, whole but for the body."""
        self._clear_deadline()
        self._table.answer(self, self._loop.time())

    def end_answer(self, *, is_read: bool) -> None:
        """Note the end of an answer; a body's unread rest is no request, and the library reads or ends the rest."""
        self._has_begun = not is_read
        self._table.wait(self)

    def abort(self) -> None:
        """Close the connection at once, without an answer."""
        self._leave()
        if self.transport is not None:
            self.transport.abort()
        elif self._entering is not None:
            self._entering.cancel()

    # What asyncio and the library call -----------------------------------------------------------------------------

    def data_received(self, data: bytes) -> None:
        """Handle bytes of a request; the first bytes start the deadline for the headers."""
        if not self._has_begun:
            self._has_begun = True
            self._table.wait(self)
            if self._deadline is None:
                self._set_deadline()
        super().data_received(data)

    def connection_lost(self, exc: BaseException | None) -> None:
        """Remove a closed connection from the table."""
        self._leave()
        super().connection_lost(exc)

    def handle_error(
        self, request: BaseRequest, status: int = 500, exc: BaseException | None = None, message: str | None = None
    ) -> StreamResponse:
        """The answer to a malformed request; the connection ends with the answer.

        Raises:
            ConnectionError: a part of another answer was sent already.
        """
        if request.writer.output_size > 0:
            raise ConnectionError("an answer was begun and cannot be ended") from exc
        reason = (message or "").partition("\n")[0].rstrip(":")[:REASON_LENGTH]
        problem = render_problem(status, HTTPStatus(status).phrase.lower(), reason)
        headers = {"Content-Type": problem.content_type, "X-Content-Type-Options": "nosniff", "Server": SERVER}
        response = WireResponse(body=problem.body, status=problem.status, headers=headers)
        response.force_close()
        return response

    # The way in and out --------------------------------------------------------------------------------------------

    async def _open(self, context: ssl.SSLContext | None) -> None:
        limits = (
            {"ssl_handshake_timeout": self._read_seconds(), "ssl_shutdown_timeout": TLS_CLOSE_SECONDS}
            if context is not None
            else {}
        )
        with contextlib.suppress(OSError, EOFError):  # a handshake that came to nothing; ssl.SSLError is an OSError
            await self._loop.connect_accepted_socket(self._adopt, self._socket, ssl=context, **limits)

    def _adopt(self) -> "Connection":
        """Leave the socket to the transport."""
        self._is_adopted = True
        return self

    def _end_opening(self, _entering: object) -> None:
        if not self._is_adopted:  # closed before a transport existed to close the socket
            self._socket.close()
        if self.transport is None:
            self._leave()

    def _set_deadline(self) -> None:
        self._deadline = self._loop.call_later(self._read_seconds(), self._end_late)

    def _clear_deadline(self) -> None:
        if self._deadline is not None:
            self._deadline.cancel()
            self._deadline = None

    def _end_late(self) -> None:
        """End a connection whose request is late; a client with a begun request gets an answer."""
        self._deadline = None
        if self.transport is None or not self._has_begun:
            self.abort()
        else:
            self.transport.write(_LATE)
            self.force_close()

    def _leave(self) -> None:
        self._clear_deadline()
        self._table.remove(self)


def render_raw(status: int, title: str, detail: str = "", *, headers: dict[str, str] | None = None) -> bytes:
    """A problem as bytes, for a client whose request was not read."""
    problem = render_problem(status, title, detail)
    fields = {
        "Server": SERVER,
        "Content-Type": problem.content_type,
        "Content-Length": str(len(problem.body)),
        "Connection": "close",
        **(headers or {}),
    }
    lines = [f"HTTP/1.1 {status} {HTTPStatus(status).phrase}", *(f"{name}: {value}" for name, value in fields.items())]
    return "\r\n".join([*lines, "", ""]).encode() + problem.body


_LATE: Final = render_raw(408, "the request did not arrive in time")
