"""A gRPC server on a unix socket of its own.

Owns the socket file, the callers, the calls in progress, and the greatest number of each.
"""

import asyncio
import socket
from collections.abc import AsyncIterator, Coroutine
from contextlib import asynccontextmanager
from functools import partial
from pathlib import Path
from typing import Any, Final

from anyio import CancelScope, create_task_group, move_on_after
from anyio.abc import TaskGroup

from nodeagent.core.acceptor import Acceptor
from nodeagent.edge.grpc.calls import CrashReporter, Methods
from nodeagent.edge.grpc.connection import LEAVE_SECONDS
from nodeagent.edge.grpc.serving import ServerConnection
from nodeagent.edge.grpc.unix_socket import FileIdentity, bind_unix_socket, identify_file

DRAIN_SECONDS: Final = 2.0
"""How long calls in progress may take to finish when the server stops; the kubelet waits for answers for ever."""
MAX_CALLERS: Final = 32
MAX_UNARY: Final = 512
"""Calls in progress of all callers, including callers that have gone."""


class GrpcServer:
    """The server yielded by `open_grpc_server`."""

    def __init__(self, path: Path, methods: Methods, tasks: TaskGroup, report_crash: CrashReporter) -> None:
        self.path, self.methods, self.report_crash = path, methods, report_crash
        self._tasks = tasks
        self._connections: dict[ServerConnection, None] = {}
        self._unary: set[asyncio.Task[None]] = set()
        self._streaming: set[asyncio.Task[None]] = set()
        self._listening: tuple[socket.socket, Acceptor] | None = None
        self._entering: set[asyncio.Task[object]] = set()
        self._file: FileIdentity | None = None

    @property
    def connection_count(self) -> int:
        """How many callers are connected."""
        return len(self._connections)

    async def listen(self, listening: socket.socket | None = None) -> None:
        """Accept callers on a socket bound before, or on a new socket; present connections go on.

        Raises:
            SocketUnavailable: the socket cannot be bound.
        """
        self._stop_listening()
        listening = listening or bind_unix_socket(self.path)
        self._file = identify_file(self.path)
        self._listening = listening, Acceptor(listening, self._take, partial(self.report_crash, "accept"))

    def owns_file(self) -> bool:
        """Whether the socket file exists and is our file."""
        return self._file is not None and self._file == identify_file(self.path)

    def end_streams(self, text: str) -> None:
        """End all streaming calls and ask all callers to leave, with `text` as the reason."""
        for connection in tuple(self._connections):
            connection.caller.end_streams(text)

    def close_connections(self) -> None:
        """Hang up on all callers."""
        for connection in tuple(self._connections):
            connection.hang_up()

    async def aclose(self) -> None:
        """Stop: no new calls, streams ended, calls in progress finished, callers gone, socket file removed."""
        self._stop_listening()
        if self.owns_file():
            self.path.unlink()
        self.end_streams("the server is stopping")
        if self._unary:
            await asyncio.wait(self._unary, timeout=DRAIN_SECONDS)
        self.close_connections()
        with move_on_after(LEAVE_SECONDS):
            for connection in tuple(self._connections):
                await connection.lost.wait()
        for connection in tuple(self._connections):
            connection.transport.abort()
            await connection.lost.wait()
        rest = self._unary | self._streaming
        for task in rest:
            task.cancel()
        if rest:
            await asyncio.wait(rest, timeout=LEAVE_SECONDS)

    # What callers need.

    @property
    def has_room(self) -> bool:
        """Whether a further unary call may begin."""
        return len(self._unary) < MAX_UNARY

    def begin(self, work: Coroutine[Any, Any, None], *, is_unary: bool) -> asyncio.Task[None]:
        """Run a call in a task of its own, counted until the end."""
        task = asyncio.get_running_loop().create_task(work)
        kind = self._unary if is_unary else self._streaming
        kind.add(task)
        task.add_done_callback(kind.discard)
        task.add_done_callback(self._end_on_defect)
        return task

    def arrive(self, connection: ServerConnection) -> bool:
        """Whether there is room for a further caller; the oldest idle caller makes room."""
        if self._listening is None:
            return False  # taken from the socket just before it was closed
        if len(self._connections) >= MAX_CALLERS:
            idle = next((each for each in self._connections if each.caller.is_idle), None)
            if idle is None:
                return False
            del self._connections[idle]
            idle.transport.abort()
        self._connections[connection] = None
        return True

    def leave(self, connection: ServerConnection) -> None:
        """Forget a caller that has gone."""
        self._connections.pop(connection, None)

    def _take(self, caller: socket.socket) -> None:
        work = asyncio.get_running_loop().connect_accepted_socket(lambda: ServerConnection(self), caller)
        entering = asyncio.get_running_loop().create_task(work)
        self._entering.add(entering)
        entering.add_done_callback(self._entering.discard)

    def _end_on_defect(self, task: asyncio.Task[None]) -> None:
        """End the server loudly when a crash reporter itself raises."""
        if not task.cancelled() and task.exception() is not None:
            self._tasks.start_soon(_raise_of, task)

    def _stop_listening(self) -> None:
        if self._listening is not None:
            listening, acceptor = self._listening
            acceptor.close()
            listening.close()
            self._listening = None


async def _raise_of(task: asyncio.Task[None]) -> None:
    task.result()


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
            with CancelScope(shield=True):  # each step is bounded in time
                await server.aclose()
            tasks.cancel_scope.cancel()
