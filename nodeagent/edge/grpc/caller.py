"""The client: a question and an answer within a time, or a stream of answers, over a unix socket, by grpclib."""

import asyncio
from collections.abc import AsyncGenerator, Coroutine, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final, TypeVar

from anyio import CancelScope, create_memory_object_stream
from anyio.streams.memory import MemoryObjectSendStream
from grpclib.client import Channel, Handler, UnaryStreamMethod, UnaryUnaryMethod
from grpclib.config import Configuration
from grpclib.encoding.base import CodecBase
from grpclib.exceptions import GRPCError, ProtocolError, StreamTerminatedError
from grpclib.protocol import H2Protocol

from nodeagent.edge.grpc.connection import Connection
from nodeagent.edge.grpc.errors import AnswerBroken, AnswerRefused
from nodeagent.edge.grpc.unix_socket import FileIdentity, identify_file

Answer = TypeVar("Answer")

MAX_ANSWER_BYTES: Final = 64 * 1024 * 1024
"""A node's whole pod resources answer has a few hundred kilobytes; a peer with an endless answer is cut off here."""
_CONFIG: Final = Configuration()


class _RawCodec(CodecBase):
    """Bytes in, bytes out."""

    __content_subtype__ = "proto"

    def encode(self, message: Any, message_type: Any) -> bytes:  # noqa: ARG002  # the interface's own signature
        return bytes(message)

    def decode(self, data: bytes, message_type: Any) -> Any:  # noqa: ARG002  # the interface's own signature
        return data


class EndingChannel(Channel):
    """A channel that stays closed; grpclib's channel reconnects for a late call, and then stays open for ever."""

    _has_ended = False

    async def __connect__(self) -> H2Protocol:
        self._refuse_after_end()
        protocol = await super().__connect__()
        try:
            self._refuse_after_end()
        except ConnectionAbortedError:
            super().close()
            raise
        return protocol

    def close(self) -> None:
        """Hang up for good."""
        self._has_ended = True
        super().close()

    def _refuse_after_end(self) -> None:
        if self._has_ended:
            raise ConnectionAbortedError("this end has hung up")


class _Channel(EndingChannel):
    """A channel with access to the connection object."""

    established: Connection | None = None

    def _protocol_factory(self) -> H2Protocol:
        self.established = Connection(Handler(), self._config, self._h2_config, limit_bytes=MAX_ANSWER_BYTES)
        return self.established


async def ask_apart(call: Coroutine[Any, Any, Answer]) -> Answer:
    """The answer of a grpclib client's call, asked in a separate task.

    When the peer leaves, grpclib wakes the asking task by a cancellation and never takes the cancellation back: a scope
    cancelled later in the same task would take the cancellation for a foreign one, and pass the cancellation on.
    """
    return await asyncio.create_task(call)


async def call_unary(socket: Path, method: str, request: bytes, *, timeout_seconds: float) -> bytes:
    """The bytes of the answer, over a connection for the one call.

    Raises:
        AnswerRefused: the peer says no, with a status and a reason.
        AnswerBroken: the peer makes no sense, or ends the call.
        TimeoutError: no answer came in time.
        OSError: no process listens at the socket, or the connection broke.
    """
    channel = _open_channel(socket)
    try:
        return await _ask(channel, method, request, timeout_seconds)
    finally:
        channel.close()


async def call_stream(socket: Path, method: str, request: bytes) -> AsyncGenerator[bytes, None]:
    """The bytes of each message of a stream as it comes, until the peer ends the stream; over a connection of its own.

    Raises:
        AnswerRefused: the peer says no, at the start or later, with a status and a reason.
        AnswerBroken: the peer makes no sense, or leaves without ending the call.
        OSError: no process listens at the socket, or the connection broke.
    """
    channel = _open_channel(socket)
    send, receive = create_memory_object_stream[bytes]()
    reading = asyncio.create_task(_read_stream(channel, method, request, send))  # apart, as in `ask_apart`
    try:
        async with receive:
            async for message in receive:
                yield message
        with _translating():
            await asyncio.wait({reading})
            if reading.cancelled():
                raise AnswerBroken("the connection ended before the stream")
            reading.result()
    finally:
        reading.cancel()
        channel.close()
        with CancelScope(shield=True):
            await asyncio.wait({reading})
        if not reading.cancelled():
            reading.exception()  # raised above, or of the end made here: a failure that nobody reads is logged


class KeptCaller:
    """Asks a peer time and again over a kept connection; for questions that may be asked twice.

    To connect, to agree on settings and to teach the peer our header fields takes as long as a question does.
    Refuses to reuse a connection after anything but an answer, or after the peer's socket file was replaced.
    """

    def __init__(self, socket: Path) -> None:
        self._socket = socket
        self._channel: _Channel | None = None
        self._file: FileIdentity | None = None

    async def call_unary(self, method: str, request: bytes, *, timeout_seconds: float) -> bytes:
        """As `call_unary`; asked once more where a kept connection turns out to be gone."""
        while True:
            channel, was_kept = self._take_channel()
            try:
                answer = await _ask(channel, method, request, timeout_seconds)
            except AnswerRefused:
                _begin_anew(channel)
                raise
            except BaseException as error:
                self._drop(channel)
                # A `TimeoutError` is an `OSError` too, but a second wait would exceed the time.
                if not was_kept or isinstance(error, TimeoutError) or not isinstance(error, AnswerBroken | OSError):
                    raise
            else:
                _begin_anew(channel)
                return answer

    def close(self) -> None:
        """Hang up; the next question connects anew."""
        if self._channel is not None:
            self._drop(self._channel)

    def _take_channel(self) -> tuple[_Channel, bool]:
        """The connection to the socket's present owner, and whether kept from an earlier question."""
        file = identify_file(self._socket)
        if self._channel is not None and file == self._file:
            return self._channel, True
        self.close()
        self._file, self._channel = file, _open_channel(self._socket)
        return self._channel, False

    def _drop(self, channel: _Channel) -> None:
        channel.close()
        if self._channel is channel:
            self._channel = None


def _open_channel(socket: Path) -> _Channel:
    return _Channel(path=str(socket), codec=_RawCodec(), config=_CONFIG)


def _begin_anew(channel: _Channel) -> None:
    """Give the next answer bounds of its own."""
    assert channel.established is not None, "an answer came over it"
    channel.established.begin_anew(MAX_ANSWER_BYTES)


async def _ask(channel: _Channel, method: str, request: bytes, timeout_seconds: float) -> bytes:
    call: UnaryUnaryMethod[bytes, bytes] = UnaryUnaryMethod(channel, method, bytes, bytes)
    with _translating():
        async with asyncio.timeout(timeout_seconds):
            return await ask_apart(call(request, timeout=timeout_seconds))


async def _read_stream(channel: _Channel, method: str, request: bytes, send: MemoryObjectSendStream[bytes]) -> None:
    """Pass the messages on, each with bounds of its own; a slow reader slows the peer."""
    call: UnaryStreamMethod[bytes, bytes] = UnaryStreamMethod(channel, method, bytes, bytes)
    async with send, call.open() as stream:
        await stream.send_message(request, end=True)
        async for message in stream:
            _begin_anew(channel)
            await send.send(message)


@contextmanager
def _translating() -> Iterator[None]:
    """Turn grpclib's errors into ours."""
    try:
        yield
    except GRPCError as error:
        raise AnswerRefused(error.status, error.message or "") from error
    except (StreamTerminatedError, AssertionError, AttributeError) as error:
        # The last two are grpclib's failures on a short answer, and on a peer that leaves before the question.
        raise AnswerBroken("the connection ended before the answer") from error
    except (ProtocolError, NotImplementedError) as error:  # the second is grpclib's error for a compressed answer
        raise AnswerBroken(str(error) or type(error).__name__) from error
