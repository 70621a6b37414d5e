"""Serves handlers over TCP and over a unix socket.

Owns sizes, time limits and names; knows nothing of the handlers' content, and leaves connections to the acceptor. An
answer that the reader does not take within the limit ends with the connection; no other request waits for a reader.
"""

import asyncio
import contextlib
import socket
import struct
from collections import Counter
from collections.abc import AsyncIterator, Callable, Mapping
from dataclasses import dataclass
from typing import Final, NamedTuple

import anyio
from aiohttp.web_request import BaseRequest
from aiohttp.web_response import Response as WireResponse
from aiohttp.web_response import StreamResponse
from aiohttp.web_server import Server

from nodeagent.edge.http.access import Access
from nodeagent.edge.http.capacity import Capacity
from nodeagent.edge.http.connection import Connection
from nodeagent.edge.http.connection_acceptor import ConnectionAcceptor
from nodeagent.edge.http.errors import BodyTooLarge, ServerBusy
from nodeagent.edge.http.hosts import AllowedHosts, is_loopback
from nodeagent.edge.http.messages import SERVER, Answer, Peer, Request, Response, Stream
from nodeagent.edge.http.queue import RequestQueue
from nodeagent.edge.http.routes import Match, Route, Routes, render_problem

SHUTDOWN_SECONDS = 1.0
HTTP_1_1 = (1, 1)
CAPACITY = Capacity(256, 128)
_PEER_CREDENTIALS = struct.Struct("3i")
_UNKNOWN = Peer()


@dataclass(frozen=True, slots=True)
class ServerLimits:
    """The limits of a request in size and time."""

    read_seconds: float = 10.0
    write_seconds: float = 30.0
    body_bytes_max: int = 64 * 1024


class ServerBounds(NamedTuple):
    """How much the clients of a server may take of the process."""

    requests: Callable[[], ServerLimits] = ServerLimits
    """The limits of each request, asked anew for each."""
    connections: Capacity = CAPACITY
    bodies: RequestQueue | None = None
    """A request enters the queue, by the bytes of its body, before the body is read, and stays until the answer is
    sent: the memory of all bodies is bounded. Without the queue it is not.
    """


USUAL_BOUNDS: Final = ServerBounds()


class HttpServer:
    """Routes behind a listener."""

    def __init__(
        self,
        routes: Routes,
        *,
        on_error: Callable[[str, Exception], None],
        on_exhausted: Callable[[OSError], None],
        bounds: ServerBounds = USUAL_BOUNDS,
        hosts: Callable[[], AllowedHosts] | None = None,
        access: Access | None = None,
        headers: Mapping[str, str] | None = None,
    ) -> None:
        """`on_error` is called with unexpected exceptions of a handler; the client gets a 500 without details.

        `on_exhausted` is called when no connection can be taken. Without `hosts` every name is welcome; `headers` go
        out with every answer.
        """
        self._routes, self._on_error, self._on_exhausted = routes, on_error, on_exhausted
        self._limits, self._capacity, self._bodies = bounds
        self._hosts, self._access = hosts, access
        self._headers = {"Server": SERVER, **(headers or {}), **(access.headers if access is not None else {})}
        self._served: Counter[tuple[str, str]] = Counter()

    @contextlib.asynccontextmanager
    async def serving(self, listener: socket.socket) -> AsyncIterator[None]:
        """Serve on the listener inside the block.

        The listener stays open and belongs to the owner: connections between two servings wait in the listener's queue.
        """
        server = Server(self._handle)
        acceptor = ConnectionAcceptor(
            server,
            listener,
            self._capacity,
            context=self._access.context if self._access is not None else None,
            read_seconds=lambda: self._limits().read_seconds,
            on_failure=self._on_exhausted,
        )
        try:
            yield
        finally:
            acceptor.close()
            server.pre_shutdown()
            await server.shutdown(SHUTDOWN_SECONDS)
            if self._access is not None:
                self._access.close()

    async def _handle(self, incoming: BaseRequest) -> StreamResponse:
        connection = incoming.protocol
        assert isinstance(connection, Connection)
        connection.begin_answer()
        try:
            return await self._serve(incoming)
        finally:
            connection.end_answer(is_read=incoming.content.is_eof())

    async def _serve(self, incoming: BaseRequest) -> StreamResponse:
        refusal = self._refuse_host(incoming) or await self._refuse(incoming)
        match = refusal or self._routes.find(incoming.method, incoming.path)
        if isinstance(match, Response):
            return await self._send(incoming, match)
        key = (match.route.method, match.route.path)
        if self._served[key] >= _read_limit(match.route):
            return await self._send(incoming, _render_busy(incoming))
        self._served[key] += 1
        try:
            if self._bodies is None or not incoming.can_read_body:
                return await self._send(incoming, await self._answer(incoming, match))
            return await self._serve_in_turn(incoming, match, self._bodies)
        finally:
            self._served[key] -= 1

    async def _serve_in_turn(self, incoming: BaseRequest, match: Match, bodies: RequestQueue) -> StreamResponse:
        most = self._limits().body_bytes_max
        length = incoming.content_length
        try:
            async with bodies.hold(most if length is None else min(length, most)):
                return await self._send(incoming, await self._answer(incoming, match))
        except ServerBusy:
            return await self._send(incoming, _render_busy(incoming))

    def _refuse_host(self, incoming: BaseRequest) -> Response | None:
        if self._hosts is None:
            return None
        transport = incoming.transport
        own = transport.get_extra_info("sockname") if transport is not None else None
        host = incoming.headers.get("Host")
        reason = self._hosts().refuse(
            host,
            is_local=isinstance(own, tuple) and is_loopback(own[0]),
            needs_host=incoming.version >= HTTP_1_1,
        )
        if not reason:
            return None
        title = "misdirected request" if host is not None else "bad request"
        return render_problem(421 if host is not None else 400, title, reason)

    async def _refuse(self, incoming: BaseRequest) -> Response | None:
        if self._access is None:
            return None
        transport = incoming.transport
        certificate = transport.get_extra_info("peercert") if transport is not None else None
        return await self._access.check(_lower(incoming), certificate)

    async def _answer(self, incoming: BaseRequest, match: Match) -> Answer:
        limits = self._limits()
        try:
            body = await _read_body(incoming, limits) if incoming.can_read_body else b""
            request = _build_request(incoming, match, body)
            if match.route.queue is None:
                return await match.handler(request)
            async with match.route.queue.hold():
                return await match.handler(request)
        except ServerBusy:
            return _render_busy(incoming)
        except BodyTooLarge:
            return render_problem(413, "request body too large", f"at most {limits.body_bytes_max} bytes")
        except TimeoutError:
            return render_problem(408, "the request did not arrive in time", headers={"Connection": "close"})
        except Exception as error:  # noqa: BLE001 - the boundary: one bad request must not end the connection's server
            # By route: paths made up by clients would be new each time, and fill the log.
            self._on_error(f"{match.route.method} {match.route.path}", error)
            return render_problem(500, "the agent failed to answer", "its log says why")

    async def _send(self, incoming: BaseRequest, answer: Answer) -> StreamResponse:
        if isinstance(answer, Stream):
            headers = {"Content-Type": answer.content_type, "Cache-Control": "no-store", **self._headers}
            return await _send_stream(incoming, answer, headers, self._limits().write_seconds)
        kind = {"Content-Type": answer.content_type, "X-Content-Type-Options": "nosniff"}
        headers = {**kind, **self._headers, **answer.headers}
        response = WireResponse(body=answer.body, status=answer.status, headers=headers)
        transport = incoming.transport
        if transport is None or transport.is_closing():
            return response
        # No bytes may wait in memory for a slow reader once the time for sending has passed.
        transport.set_write_buffer_limits(high=0)
        # A plain timer: with a cancel scope a scrape costs an eighth more.
        too_late = asyncio.get_running_loop().call_later(self._limits().write_seconds, transport.abort)
        try:
            with contextlib.suppress(ConnectionError):
                await response.prepare(incoming)
                await response.write_eof()
        finally:
            too_late.cancel()
        return response


def _render_busy(incoming: BaseRequest) -> Response:
    return render_problem(503, f"{incoming.path} is busy", "try again", headers={"Retry-After": "1"})


def _read_limit(route: Route) -> float:
    return route.at_most() if route.at_most is not None else float("inf")


def _lower(incoming: BaseRequest) -> dict[str, str]:
    return {name.lower(): value for name, value in incoming.headers.items()}


def _build_request(incoming: BaseRequest, match: Match, body: bytes) -> Request:
    return Request(
        method=incoming.method,
        path=incoming.path,
        query=dict(incoming.query) if "?" in incoming.raw_path else {},
        headers=_lower(incoming),
        body=body,
        arguments=match.arguments,
        peer=_read_peer(incoming),
    )


async def _read_body(incoming: BaseRequest, limits: ServerLimits) -> bytes:
    """The whole body: a single read gives only the bytes arrived so far."""
    length = incoming.content_length
    if length is not None and length > limits.body_bytes_max:
        raise BodyTooLarge
    body = bytearray()
    with anyio.fail_after(limits.read_seconds):
        while chunk := await incoming.content.read(limits.body_bytes_max + 1 - len(body)):
            body += chunk
            if len(body) > limits.body_bytes_max:
                raise BodyTooLarge
    return bytes(body)


def _read_peer(incoming: BaseRequest) -> Peer:
    transport = incoming.transport
    # A peer over TCP has an address of several parts, which costs less to see than the socket's family.
    if transport is None or isinstance(transport.get_extra_info("peername"), tuple):
        return _UNKNOWN
    connection = transport.get_extra_info("socket")
    if connection is None or connection.family != socket.AF_UNIX:
        return _UNKNOWN
    packed = connection.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, _PEER_CREDENTIALS.size)
    pid, uid, gid = _PEER_CREDENTIALS.unpack(packed)
    return Peer(pid=pid, uid=uid, gid=gid)


async def _send_stream(
    incoming: BaseRequest, answer: Stream, headers: dict[str, str], write_seconds: float
) -> StreamResponse:
    """Send chunk by chunk; a chunk not taken in time ends the connection. HEAD gets the headers alone."""
    response = StreamResponse(headers=headers)
    transport = incoming.transport
    if transport is not None:
        transport.set_write_buffer_limits(high=0)
    async with contextlib.aclosing(answer.chunks) as chunks:  # type: ignore[type-var]  # async generators are closable
        # A client that leaves ends the stream only.
        with contextlib.suppress(ConnectionError):
            await response.prepare(incoming)
            if incoming.method == "HEAD":
                return response
            async for chunk in chunks:
                await _write_in_time(response, chunk, transport, write_seconds)
    return response


async def _write_in_time(
    response: StreamResponse, chunk: bytes, transport: asyncio.Transport | None, seconds: float
) -> None:
    if transport is None:
        return
    too_late = asyncio.get_running_loop().call_later(seconds, transport.abort)
    try:
        await response.write(chunk)
    finally:
        too_late.cancel()
