"""A gRPC server on a unix socket of its own.

It owns the socket file, the connections, and the calls in progress.
A unary call that has begun is carried to its end even when its caller has gone: what it writes down is the truth,
whether or not somebody hears the answer.
A streaming call ends with its caller.
"""

import asyncio
import socket
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from functools import partial
from pathlib import Path
from typing import Final

from anyio import create_task_group, move_on_after
from anyio.abc import TaskGroup

from nodeagent.edge.kubelet.wire.connection import Connection, CrashReporter, Methods
from nodeagent.edge.kubelet.wire.unix_socket import FileIdentity, bind_unix_socket, identify_file
from nodeagent.kernel.acceptor import Acceptor

DRAIN_SECONDS: Final = 2.0
"""How long calls in progress may take to finish when the server stops; the kubelet waits for them for ever."""
LEAVE_SECONDS: Final = 0.5
"""How long a caller may take to read the last bytes."""


class GrpcServer:
    """What `open_grpc_server` yields."""

    def __init__(self, path: Path, methods: Methods, tasks: TaskGroup, report_crash: CrashReporter) -> None:
        self.path = path
        self._methods, self._tasks, self._report_crash = methods, tasks, report_crash
        self._connections: set[Connection] = set()
        self._listening: tuple[socket.socket, Acceptor] | None = None
        self._entering: set[asyncio.Task[object]] = set()
        self._file: FileIdentity | None = None

    @property
    def connection_count(self) -> int:
        """How many callers are connected."""
        return len(self._connections)

    async def listen(self, listening: socket.socket | None = None) -> None:
        """Accept callers on a socket bound before, or bind it anew; connections there are go on.

        Raises:
            SocketUnavailable: it cannot be bound.
        """
        self._stop_listening()
        listening = listening or bind_unix_socket(self.path)
        self._file = identify_file(self.path)
        self._listening = listening, Acceptor(listening, self._take, partial(self._report_crash, "accept"))

    def owns_file(self) -> bool:
        """Whether the socket file is there and is ours."""
        return self._file is not None and self._file == identify_file(self.path)

    def end_streams(self, text: str) -> None:
        """End all streaming calls and ask all callers to leave; `text` is what they are told."""
        for connection in tuple(self._connections):
            connection.end_streams(text)

    def close_connections(self) -> None:
        """Hang up on all callers."""
        for connection in tuple(self._connections):
            connection.close()

    async def aclose(self) -> None:
        """Stop: no new calls, streams ended, calls in progress finished, callers gone, socket file removed."""
        self._stop_listening()
        if self.owns_file():
            self.path.unlink()
        self.end_streams("the server is stopping")
        with move_on_after(DRAIN_SECONDS):
            for connection in tuple(self._connections):
                await connection.wait_idle()
        self.close_connections()
        with move_on_after(LEAVE_SECONDS):
            for connection in tuple(self._connections):
                await connection.wait_closed()
        for connection in tuple(self._connections):
            connection.abort()
            await connection.wait_closed()

    def _take(self, caller: socket.socket) -> None:
        entering = asyncio.get_running_loop().create_task(self._connect(caller))
        self._entering.add(entering)
        entering.add_done_callback(self._entering.discard)

    async def _connect(self, caller: socket.socket) -> None:
        if self._listening is None:  # taken just before the server stopped
            caller.close()
            return
        await asyncio.get_running_loop().connect_accepted_socket(self._make_connection, caller)

    def _make_connection(self) -> Connection:
        connection = Connection(self._methods, self._tasks, self._report_crash, self._connections.discard)
        self._connections.add(connection)
        return connection

    def _stop_listening(self) -> None:
        if self._listening is not None:
            listening, acceptor = self._listening
            acceptor.close()
            listening.close()
            self._listening = None


@asynccontextmanager
async def open_grpc_server(path: Path, methods: Methods, report_crash: CrashReporter) -> AsyncIterator[GrpcServer]:
    """Serve the methods at `path` for as long as the block lasts.

    Raises:
        SocketUnavailable: the socket cannot be bound.
    """
    # Bound out here, because an error from inside the task group would come out as a group.
    listening = bind_unix_socket(path)
    async with create_task_group() as tasks:
        server = GrpcServer(path, methods, tasks, report_crash)
        await server.listen(listening)
        try:
            yield server
        finally:
            # Everything below is bounded in time, see `aclose`.
            with move_on_after(DRAIN_SECONDS + 2 * LEAVE_SECONDS, shield=True):
                await server.aclose()
            tasks.cancel_scope.cancel()
