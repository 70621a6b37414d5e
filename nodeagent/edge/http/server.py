"""Serves handlers over TCP and over a unix socket.

Owns sockets, sizes, and time limits; knows nothing of what is served.
"""

import contextlib
import os
import socket
import stat
import struct
from collections.abc import AsyncIterator
from pathlib import Path
from typing import TYPE_CHECKING

from nodeagent.edge.http.errors import BodyTooLarge, ListenFailed
from nodeagent.edge.http.messages import Answer, Peer, Request, Response, Stream
from nodeagent.edge.http.routes import Match, Routes, render_problem
from nodeagent.edge.http.slim import BaseRequest, Server, ServerRunner, SockSite, StreamResponse
from nodeagent.edge.http.slim import Response as WireResponse

if TYPE_CHECKING:
    from collections.abc import Callable

BODY_BYTES_MAX = 64 * 1024
KEEPALIVE_SECONDS = 75.0
SHUTDOWN_SECONDS = 1.0
BACKLOG = 128
_PEER_CREDENTIALS = struct.Struct("3i")


class HttpServer:
    """Routes behind one listener."""

    def __init__(self, routes: Routes, *, on_error: "Callable[[str, Exception], None]") -> None:
        """`on_error` is told of exceptions that a handler let through; the client gets a 500 without details."""
        self._routes, self._on_error = routes, on_error

    @contextlib.asynccontextmanager
    async def serving(self, listener: socket.socket) -> AsyncIterator[None]:
        """Serve on this listener inside the block.

        The listener itself stays open and its owner's: connections that arrive between two servings wait in its queue.
        """
        server = Server(self._handle, access_log=None, keepalive_timeout=KEEPALIVE_SECONDS)
        runner = ServerRunner(server, handle_signals=False, shutdown_timeout=SHUTDOWN_SECONDS)
        await runner.setup()
        try:
            await SockSite(runner, listener.dup(), backlog=BACKLOG).start()
            yield
        finally:
            await runner.cleanup()

    async def _handle(self, incoming: BaseRequest) -> StreamResponse:
        match = self._routes.find(incoming.method, incoming.path)
        if isinstance(match, Response):
            return _to_aiohttp(match)
        try:
            answer = await match.handler(await _read_request(incoming, match))
        except BodyTooLarge:
            return _to_aiohttp(render_problem(413, "request body too large", f"at most {BODY_BYTES_MAX} bytes"))
        except Exception as error:  # noqa: BLE001 - the boundary: one bad request must not end the connection's server
            self._on_error(f"{incoming.method} {incoming.path}", error)
            return _to_aiohttp(render_problem(500, "the agent failed to answer", "its log says why"))
        return await _send(incoming, answer)


async def _read_request(incoming: BaseRequest, match: Match) -> Request:
    length = incoming.content_length
    if length is not None and length > BODY_BYTES_MAX:
        raise BodyTooLarge
    body = await incoming.content.read(BODY_BYTES_MAX + 1) if incoming.can_read_body else b""
    if len(body) > BODY_BYTES_MAX:
        raise BodyTooLarge
    return Request(
        method=incoming.method,
        path=incoming.path,
        query=dict(incoming.query),
        headers={name.lower(): value for name, value in incoming.headers.items()},
        body=body,
        arguments=match.arguments,
        peer=_read_peer(incoming),
    )


def _read_peer(incoming: BaseRequest) -> Peer:
    transport = incoming.transport
    connection = transport.get_extra_info("socket") if transport is not None else None
    if connection is None or connection.family != socket.AF_UNIX:
        return Peer()
    packed = connection.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, _PEER_CREDENTIALS.size)
    pid, uid, gid = _PEER_CREDENTIALS.unpack(packed)
    return Peer(pid=pid, uid=uid, gid=gid)


async def _send(incoming: BaseRequest, answer: Answer) -> StreamResponse:
    if isinstance(answer, Response):
        return _to_aiohttp(answer)
    return await _send_stream(incoming, answer)


def _to_aiohttp(answer: Response) -> WireResponse:
    headers = {"Content-Type": answer.content_type, "X-Content-Type-Options": "nosniff", **answer.headers}
    return WireResponse(body=answer.body, status=answer.status, headers=headers)


async def _send_stream(incoming: BaseRequest, answer: Stream) -> StreamResponse:
    response = StreamResponse(headers={"Content-Type": answer.content_type, "Cache-Control": "no-store"})
    await response.prepare(incoming)
    async with contextlib.aclosing(answer.chunks) as chunks:  # type: ignore[type-var]  # async generators are closable
        # A client that leaves ends its stream and nothing else.
        with contextlib.suppress(ConnectionError):
            async for chunk in chunks:
                await response.write(chunk)
    return response


def open_tcp_listener(host: str, port: int, *, key: str) -> socket.socket:
    """A bound TCP socket.

    Raises:
        ListenFailed: the address cannot be had; says what to do and which setting to change.
    """
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    listener = socket.socket(family, socket.SOCK_STREAM)
    try:
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listener.bind((host or "0.0.0.0", port))  # noqa: S104 - only where the setting says every interface
        listener.listen(BACKLOG)
        listener.settimeout(0)
    except OSError as error:
        listener.close()
        reason = os.strerror(error.errno) if error.errno else str(error)
        remedy = "free the port (`ss -ltnp` names its owner) or set another address"
        raise ListenFailed(key, f"{host}:{port}", reason.lower(), remedy) from error
    return listener


def open_unix_listener(path: Path, *, key: str, mode: int) -> socket.socket:
    """A bound unix socket that only `mode` lets in; a stale file of a dead process is replaced, a living one's is not.

    Raises:
        ListenFailed: the path cannot be had.
    """
    listener = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        _remove_stale(path)
        # The mode is set by the umask at bind time: between bind and chmod anybody could connect.
        before = os.umask(0o777 & ~mode)
        try:
            listener.bind(str(path))
        finally:
            os.umask(before)
        listener.listen(BACKLOG)
        listener.settimeout(0)
    except OSError as error:
        listener.close()
        reason = os.strerror(error.errno) if error.errno else str(error)
        remedy = "stop the other agent, or set another directory that this user may write"
        raise ListenFailed(key, str(path), reason.lower(), remedy) from error
    return listener


def _remove_stale(path: Path) -> None:
    try:
        if not stat.S_ISSOCK(path.lstat().st_mode):
            raise FileExistsError(17, "a file that is no socket is in the way")
    except FileNotFoundError:
        return
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as probe:
        probe.settimeout(1.0)
        try:
            probe.connect(str(path))
        except ConnectionRefusedError:
            path.unlink(missing_ok=True)
            return
        except TimeoutError:
            pass  # somebody listens but is too busy to accept: taken
    raise OSError(98, "another process listens there")
