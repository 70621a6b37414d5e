"""A caller of a server: the calls, answered over grpclib's connection.

A call costs a task once the request is whole, and none before: opening and resetting calls leaves no cost behind. A
unary call once begun is carried to the end even for a caller that has gone: the journal has the truth, whether or not
the answer is heard. A streaming call ends with the caller.

grpclib's own handler is not used: on the calls that pods wait for, grpclib's takes twice the time, ends an Allocate
with the caller, knows one status for all malformed requests, and no limit to a request
(docs/adr/0009-grpclib-in-bounds.md).
"""

import asyncio
from collections.abc import Callable, Coroutine, Iterable
from functools import partial
from typing import Any, Final, Protocol

from google.protobuf.message import DecodeError, Message
from grpclib.config import Configuration
from grpclib.protocol import AbstractHandler, Stream
from h2.config import H2Configuration
from h2.exceptions import ProtocolError

from nodeagent.edge.grpc.calls import (
    CRASH_TEXT,
    MAX_REQUEST_BYTES,
    OK_TRAILERS,
    RESPONSE_HEADERS,
    CallRefused,
    CrashReporter,
    Headers,
    Methods,
    Replies,
    Streaming,
    Unary,
    encode_message,
    judge_body,
    judge_head,
    parse_body,
    render_trailers,
)
from nodeagent.edge.grpc.connection import FRAME_BYTES, Connection
from nodeagent.edge.grpc.errors import Status

TAKE_SECONDS: Final = 30.0
"""How long a caller may take to make room for an answer before the server hangs up."""
MAX_IN_PROGRESS: Final = 100
"""As many calls as a caller may have streams, including given up calls, so that no caller takes all room."""
MAX_STREAMING: Final = 8
"""Lists that a caller may follow; the kubelet follows one. Each list holds an answer for a slow caller."""
MAX_DISCARDED_BYTES: Final = 16 * MAX_REQUEST_BYTES
"""The bytes still taken of a refused request: some callers read no answer before the end of sending."""
_WINDOW_BYTES: Final = MAX_REQUEST_BYTES + FRAME_BYTES
_CONFIG: Final = Configuration(
    http2_connection_window_size=_WINDOW_BYTES, http2_stream_window_size=_WINDOW_BYTES
).__for_server__()
# Header fields stay bytes: the protocol does not make them text.
_H2_CONFIG: Final = H2Configuration(
    client_side=False,
    header_encoding=None,
    validate_inbound_headers=False,
    validate_outbound_headers=False,
    normalize_inbound_headers=False,
    normalize_outbound_headers=False,
)


class Host(Protocol):
    """The server's interface for a caller."""

    methods: Methods
    report_crash: CrashReporter

    @property
    def has_room(self) -> bool:
        """Whether a further unary call may begin."""
        ...

    def begin(self, work: Coroutine[Any, Any, None], *, is_unary: bool) -> asyncio.Task[None]:
        """Run a call in a task of its own, counted until the end."""
        ...

    def arrive(self, connection: "ServerConnection") -> bool:
        """Whether there is room for a further caller."""
        ...

    def leave(self, connection: "ServerConnection") -> None:
        """Forget a caller that has gone."""
        ...


class Call:
    """A call; takes the place of grpclib's buffer, and collects the pieces of the request.

    Received bytes are acknowledged when the call is over, so that the connection's window bounds memory for requests.
    Later bytes are thrown away and acknowledged at once.
    """

    __slots__ = ("_body", "_caller", "_discarded", "_release", "_unacknowledged", "ends_with_caller", "has_headers",
                 "is_over", "is_whole", "path", "stream", "stream_id", "task")  # fmt: skip

    def __init__(self, caller: "Caller", stream: Stream, path: str, release: Callable[[], None]) -> None:
        self._caller, self.stream, self.path, self._release = caller, stream, path, release
        self.stream_id: int = stream.id  # type: ignore[assignment]  # grpclib's own clients learn theirs later
        self._body = bytearray()
        self._unacknowledged = self._discarded = 0
        self.task: asyncio.Task[None] | None = None
        self.ends_with_caller = self.has_headers = self.is_whole = False
        self.is_over = False
        """Answered already, or given up; later bytes are thrown away."""

    def add(self, data: bytes, ack_size: int) -> None:
        """Add a piece of the request."""
        self._unacknowledged += ack_size
        if not self.is_over:
            self._body += data
            refusal = judge_body(self._body)
            if refusal is not None:
                self._caller.refuse(self, refusal)
        if self.is_over and self._discarded < MAX_DISCARDED_BYTES:
            self._discarded += self._unacknowledged
            self._caller.discard(self, self._unacknowledged)
            self._body, self._unacknowledged = bytearray(), 0

    def eof(self) -> None:
        """Begin the call: the request is whole."""
        self.is_whole = True
        if self.is_over:
            self._caller.forget(self)
        else:
            self._caller.begin(self)

    def unacked_size(self) -> int:
        """The bytes for grpclib to acknowledge: none, as `release` acknowledges."""
        return 0

    def take_message(self) -> bytes:
        """The request's message, which the call no longer keeps.

        Raises:
            CallRefused: the message is not whole.
        """
        body, self._body = self._body, bytearray()
        return parse_body(body)

    def release(self) -> None:
        """Let grpclib forget the stream; once."""
        self._release()
        self._caller.make_room(self._unacknowledged)
        self._release, self._body, self._unacknowledged = _nothing, bytearray(), 0
        del self.stream.buffer  # the buffer is this call: the cycle would wait for the garbage collector


class Caller(AbstractHandler):
    """Answers the calls of a connection."""

    def __init__(self, host: Host, connection: "ServerConnection") -> None:
        self._host, self._connection = host, connection
        self._calls: dict[Stream, Call] = {}
        self._streaming: set[Call] = set()
        self._in_progress = 0
        self._stopping = False

    @property
    def is_idle(self) -> bool:
        """Whether no call is in progress."""
        return not self._in_progress

    # What grpclib calls.

    def accept(self, stream: Stream, headers: Iterable[Any], release_stream: Callable[[], None]) -> None:
        """Note a new call, and refuse a bad head."""
        path, refusal = judge_head(headers)
        call = self._calls[stream] = Call(self, stream, path, release_stream)
        stream.buffer = call  # type: ignore[assignment]
        if refusal is not None:
            self.refuse(call, refusal)

    def cancel(self, stream: Stream) -> None:
        """End a call that the caller has given up."""
        call = self._calls.get(stream)
        if call is not None:
            self._give_up(call)
            self.forget(call)

    def close(self) -> None:
        """End all calls of a closed connection."""
        for call in self._calls.values():
            self._give_up(call)
        self._calls.clear()

    # What calls and the server call.

    def begin(self, call: Call) -> None:
        """Start the handler of a whole request."""
        try:
            method = self._find_method(call.path)
            request = method.request_type.FromString(call.take_message())
        except (CallRefused, DecodeError) as error:
            self._fail(call, error)
            return
        call.ends_with_caller = isinstance(method, Streaming)
        if isinstance(method, Unary):
            call.task = self._host.begin(self._answer(call, method, request), is_unary=True)
        else:
            self._streaming.add(call)
            call.task = self._host.begin(self._stream(call, method, request), is_unary=False)
        self._in_progress += 1
        call.task.add_done_callback(partial(self._end, call))

    def refuse(self, call: Call, refusal: CallRefused) -> None:
        """Answer with a refusal."""
        self._finish(call, render_trailers(refusal.status, refusal.text))

    def forget(self, call: Call) -> None:
        """Drop a finished call."""
        if self._calls.pop(call.stream, None) is not None:
            call.release()

    def make_room(self, size_bytes: int) -> None:
        """Let the caller send so many bytes more, for as many handled bytes."""
        self._connection.make_room(size_bytes)

    def discard(self, call: Call, size_bytes: int) -> None:
        """Let the caller send so many bytes more of a refused request."""
        if not self._connection.connection.is_closing():
            self._connection.connection.ack(call.stream_id, size_bytes)

    def end_streams(self, text: str) -> None:
        """Take no more calls, and end streaming calls; unary calls in progress go on."""
        self._stopping = True
        for call in tuple(self._streaming):
            self.refuse(call, CallRefused(Status.UNAVAILABLE, text))
            self._give_up(call)

    async def _send(self, call: Call, message: Message) -> None:
        """Send an answer when the caller has room; hang up on a caller without room."""
        try:
            async with asyncio.timeout(TAKE_SECONDS):
                if not call.has_headers:
                    await call.stream.send_headers(RESPONSE_HEADERS)  # type: ignore[arg-type]
                    call.has_headers = True
                await call.stream.send_data(encode_message(message.SerializeToString()))
                await self._connection.connection.write_ready.wait()
        except TimeoutError:
            self._connection.transport.abort()

    # Calls.

    def _find_method(self, path: str) -> Unary | Streaming:
        method = self._host.methods.get(path)
        if method is None:
            raise CallRefused(Status.UNIMPLEMENTED, f"no method {path}")
        if self._stopping:
            raise CallRefused(Status.UNAVAILABLE, "the server is stopping")
        has_room = self._host.has_room if isinstance(method, Unary) else len(self._streaming) < MAX_STREAMING
        has_room = has_room and self._in_progress < MAX_IN_PROGRESS
        if not has_room:
            raise CallRefused(Status.RESOURCE_EXHAUSTED, "too many calls are in progress")
        return method

    async def _answer(self, call: Call, method: Unary, request: Message) -> None:
        try:
            reply = await method.handler(request)
            call.ends_with_caller = True
            if not self._send_at_once(call, encode_message(reply.SerializeToString())):
                await self._send(call, reply)
                self._finish(call, OK_TRAILERS)
        except Exception as error:  # noqa: BLE001  judged in `_fail`, see there
            self._fail(call, error)

    async def _stream(self, call: Call, method: Streaming, request: Message) -> None:
        try:
            await method.handler(request, Replies(partial(self._send, call), self._connection.lost.wait))
            self._finish(call, OK_TRAILERS)
        except Exception as error:  # noqa: BLE001  judged in `_fail`, see there
            self._fail(call, error)

    def _end(self, call: Call, _task: object) -> None:
        """Count a call as ended, even with a task cancelled before the start."""
        call.task = None
        self._in_progress -= 1
        self._streaming.discard(call)

    def _give_up(self, call: Call) -> None:
        call.is_over = True
        if call.ends_with_caller and call.task is not None:
            call.task.cancel()

    def _fail(self, call: Call, error: Exception) -> None:
        """Refuse a failed call, and report an unforeseen error: a bad call must not end the service."""
        if isinstance(error, DecodeError):
            self.refuse(call, CallRefused(Status.INVALID_ARGUMENT, f"the message to {call.path} is malformed"))
        elif isinstance(error, CallRefused):
            self.refuse(call, error)
        elif not isinstance(error, ProtocolError):  # grpclib's error for a caller that has left
            self.refuse(call, CallRefused(Status.INTERNAL, CRASH_TEXT))
            self._host.report_crash(call.path, error)

    def _send_at_once(self, call: Call, body: bytes) -> bool:
        """Send the whole answer in one write, where there is room; grpclib would make three writes."""
        http, stream_id = self._connection.http, call.stream_id
        if call.stream.closable:
            room = min(http.local_flow_control_window(stream_id), http.max_outbound_frame_size)
            if len(body) > room or not self._connection.connection.write_ready.is_set():
                return False
            http.send_headers(stream_id, RESPONSE_HEADERS)
            http.send_data(stream_id, body)
            call.has_headers = True
        self._finish(call, OK_TRAILERS)
        return True

    def _finish(self, call: Call, trailers: Headers) -> None:
        """Send the end of an answer."""
        call.is_over = True
        if call.stream.closable:
            fields = trailers if call.has_headers else [*RESPONSE_HEADERS, *trailers]
            self._connection.http.send_headers(call.stream_id, fields, end_stream=True)
        if call.is_whole:
            self.forget(call)
        if not self._connection.connection.is_closing():
            self._connection.connection.flush()


class ServerConnection(Connection):
    """A caller's connection."""

    def __init__(self, host: Host) -> None:
        self._host = host
        self.caller = Caller(host, self)
        self.lost = asyncio.Event()
        super().__init__(self.caller, _CONFIG, _H2_CONFIG)

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Enter the caller, or hang up without room."""
        super().connection_made(transport)
        if not self._host.arrive(self):
            self.transport.abort()

    def connection_lost(self, exc: BaseException | None) -> None:
        """Remove the caller, whatever the reason."""
        super().connection_lost(exc)
        self.lost.set()
        self._host.leave(self)


def _nothing() -> None:
    pass
