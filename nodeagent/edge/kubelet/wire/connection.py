"""One caller of a gRPC server: its bytes, its calls, and how fast it reads."""

import asyncio
from collections.abc import Awaitable, Callable, Coroutine, Mapping
from typing import Any, Final, NamedTuple, Protocol, cast

from anyio import CancelScope
from anyio.abc import TaskGroup
from google.protobuf.message import DecodeError, Message
from grpclib.const import Status

from nodeagent.edge.kubelet.wire.http2 import Cancelled, ConnectionBroken, Request, ServerConnection


class CallRefused(Exception):
    """A handler's way to answer with an error."""

    def __init__(self, status: Status, text: str) -> None:
        super().__init__(f"{status.name.lower()}: {text}")
        self.status, self.text = status, text


class Replies(Protocol):
    """The answering end of a streaming call."""

    async def send(self, message: Message) -> None:
        """Send one answer; returns when the caller has room for it, so that a slow caller slows only its own call."""
        ...

    async def wait_closed(self) -> None:
        """Return when the caller has closed its connection, not only this call."""
        ...


class Unary(NamedTuple):
    """A method with one answer, which the handler returns where it has it at once: no task is made for that."""

    request_type: type[Message]
    handler: Callable[[Any], Message | Awaitable[Message]]


class Streaming(NamedTuple):
    """A method whose answers have an open end."""

    request_type: type[Message]
    handler: Callable[[Any, Replies], Awaitable[None]]


Methods = Mapping[str, Unary | Streaming]
"""By path: `/package.Service/Method`."""

CrashReporter = Callable[[str, Exception], None]
"""Told of the method and the error when a handler fails with anything but a refusal; its caller gets INTERNAL."""

CRASH_TEXT: Final = "nodeagent failed on this call, its log says how"


class _NotConnected(asyncio.Transport):
    """Stands where the transport will be, between the socket's acceptance and the connection."""

    def is_closing(self) -> bool:
        return True

    def close(self) -> None:
        pass

    def abort(self) -> None:
        pass


class Connection(asyncio.Protocol):
    """Serves one caller until it leaves or `close` is called."""

    def __init__(
        self, methods: Methods, tasks: TaskGroup, report_crash: CrashReporter, gone: Callable[["Connection"], None]
    ) -> None:
        self._methods, self._tasks, self._report_crash, self._gone = methods, tasks, report_crash, gone
        self._http = ServerConnection()
        self._transport: asyncio.Transport = _NotConnected()
        self._streams: dict[int, CancelScope] = {}
        self._writable = asyncio.Event()
        self._writable.set()
        self._moved = asyncio.Event()
        self._lost = asyncio.Event()
        self._leaving = False
        self._idle = asyncio.Event()
        self._idle.set()
        self._calls_in_progress = 0
        self._stopping = False

    # What asyncio calls.

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """A caller is here: tell it what we accept."""
        self._transport = cast("asyncio.Transport", transport)
        if self._leaving:
            # Accepted by the socket just before it was closed.
            self._transport.abort()
        self._flush()

    def data_received(self, data: bytes) -> None:
        """The caller says something."""
        try:
            events = self._http.receive(data)
        except ConnectionBroken:
            self.close()
            return
        for event in events:
            if isinstance(event, Request):
                self._begin(event)
            elif isinstance(event, Cancelled):
                self._cancel(event.stream_id)
            else:
                self._moved.set()
        self._flush()

    def pause_writing(self) -> None:
        """A caller that does not read its answers gets no more questions in, so that nothing piles up here."""
        self._writable.clear()
        self._transport.pause_reading()

    def resume_writing(self) -> None:
        """The caller reads again."""
        self._writable.set()
        self._transport.resume_reading()

    def connection_lost(self, exc: Exception | None) -> None:
        """The caller has left; why changes nothing."""
        del exc
        for scope in self._streams.values():
            scope.cancel()
        self._lost.set()
        self._gone(self)

    # What the server calls.

    def end_streams(self, text: str) -> None:
        """Take no more calls, and end the streaming ones; the unary ones in progress go on."""
        self._stopping = True
        for stream_id, scope in self._streams.items():
            self._http.sender.finish(stream_id, Status.UNAVAILABLE, text)
            scope.cancel()
        self._flush()

    def close(self) -> None:
        """Send what is waiting to be sent, then leave."""
        # Without GOAWAY: some clients drop answers that they have got and not yet read when they hear it.
        self._leaving = True
        self._flush()
        self._transport.close()

    def abort(self) -> None:
        """Leave at once."""
        self._leaving = True
        self._transport.abort()

    async def wait_idle(self) -> None:
        """Return when no call is in progress."""
        await self._idle.wait()

    async def wait_closed(self) -> None:
        """Return when the caller has left."""
        await self._lost.wait()

    # Calls.

    def _begin(self, request: Request) -> None:
        method = self._methods.get(request.path)
        if method is None:
            self._http.sender.finish(request.stream_id, Status.UNIMPLEMENTED, f"no method {request.path}")
        elif self._stopping:
            self._http.sender.finish(request.stream_id, Status.UNAVAILABLE, "the server is stopping")
        elif isinstance(method, Unary):
            self._ask(request, method)
        else:
            self._go_on(request, self._stream(request, method))

    def _ask(self, request: Request, method: Unary) -> None:
        """Answer at once, or begin to wait for the answer."""
        try:
            outcome = method.handler(method.request_type.FromString(request.message))
        except Exception as error:  # noqa: BLE001  judged in `_fail`, see there
            self._fail(request, error)
            return
        if isinstance(outcome, Message):
            self._http.sender.answer(request.stream_id, outcome.SerializeToString())
        else:
            self._go_on(request, self._answer(request, outcome))

    def _go_on(self, request: Request, rest: Coroutine[Any, Any, None]) -> None:
        """The rest of a call has something to wait for, and so gets a task."""
        self._calls_in_progress += 1
        self._idle.clear()
        self._tasks.start_soon(self._serve, request, rest, name=request.path)

    def _cancel(self, stream_id: int) -> None:
        scope = self._streams.get(stream_id)
        if scope is not None:
            scope.cancel()

    async def _serve(self, request: Request, rest: Coroutine[Any, Any, None]) -> None:
        try:
            await rest
        except Exception as error:  # noqa: BLE001  judged in `_fail`, see there
            self._fail(request, error)
        finally:
            self._flush()
            self._calls_in_progress -= 1
            if not self._calls_in_progress:
                self._idle.set()

    def _fail(self, request: Request, error: Exception) -> None:
        """One bad call must not end the service: its caller is told, and what was not foreseen is reported."""
        finish, stream_id = self._http.sender.finish, request.stream_id
        if isinstance(error, DecodeError):
            finish(stream_id, Status.INVALID_ARGUMENT, f"the message to {request.path} is malformed")
        elif isinstance(error, CallRefused):
            finish(stream_id, error.status, error.text)
        else:
            finish(stream_id, Status.INTERNAL, CRASH_TEXT)
            self._report_crash(request.path, error)

    async def _answer(self, request: Request, pending: Awaitable[Message]) -> None:
        reply = await pending
        self._http.sender.answer(request.stream_id, reply.SerializeToString())

    async def _stream(self, request: Request, method: Streaming) -> None:
        message = method.request_type.FromString(request.message)
        with CancelScope() as scope:
            self._streams[request.stream_id] = scope
            try:
                await method.handler(message, _Replies(self, request.stream_id))
            finally:
                del self._streams[request.stream_id]
            self._http.sender.finish(request.stream_id, Status.OK)

    async def send(self, stream_id: int, message: bytes) -> None:
        """Send a streaming answer, and wait for the caller's room; the call's scope ends the wait when it leaves."""
        self._http.sender.send(stream_id, message)
        self._flush()
        while not self._http.sender.is_drained(stream_id):
            self._moved.clear()
            await self._moved.wait()
        await self._writable.wait()

    def _flush(self) -> None:
        output = self._http.sender.take_output()
        if output and not self._transport.is_closing():
            self._transport.write(output)


class _Replies:
    """See `Replies`."""

    def __init__(self, connection: Connection, stream_id: int) -> None:
        self._connection, self._stream_id = connection, stream_id

    async def send(self, message: Message) -> None:
        await self._connection.send(self._stream_id, message.SerializeToString())

    async def wait_closed(self) -> None:
        await self._connection.wait_closed()
