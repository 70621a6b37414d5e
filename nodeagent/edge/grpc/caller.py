"""Calls of others: one question, one answer, over a unix socket and within a time, by grpclib's client."""

import asyncio
from collections.abc import Coroutine
from pathlib import Path
from typing import Any, Final, TypeVar

from grpclib.client import Channel, Handler, UnaryUnaryMethod
from grpclib.config import Configuration
from grpclib.encoding.base import CodecBase
from grpclib.exceptions import GRPCError, ProtocolError, StreamTerminatedError
from grpclib.protocol import H2Protocol

from nodeagent.edge.grpc.errors import AnswerBroken, AnswerRefused
from nodeagent.edge.grpc.line import Line

Answer = TypeVar("Answer")

MAX_ANSWER_BYTES: Final = 64 * 1024 * 1024
"""A node's whole account is a few hundred kilobytes; a peer that goes on for ever is cut off here."""
_CONFIG: Final = Configuration()


class _RawCodec(CodecBase):
    """Bytes in, bytes out."""

    __content_subtype__ = "proto"

    def encode(self, message: Any, message_type: Any) -> bytes:  # noqa: ARG002  # the interface's own signature
        return bytes(message)

    def decode(self, data: bytes, message_type: Any) -> Any:  # noqa: ARG002  # the interface's own signature
        return data


class _Channel(Channel):
    """For one call: a connection that ends with it has no state that could go stale over the peer's restart."""

    def _protocol_factory(self) -> H2Protocol:
        return Line(Handler(), self._config, self._h2_config, limit_bytes=MAX_ANSWER_BYTES)


async def ask_apart(call: Coroutine[Any, Any, Answer]) -> Answer:
    """What a call by grpclib's client answers, asked in a task of its own.

    When the peer leaves, grpclib wakes whoever asks by a cancellation that it never takes back: every scope that is
    cancelled later in that task would take it for somebody else's, and pass it on.
    """
    return await asyncio.create_task(call)


async def call_unary(socket: Path, method: str, request: bytes, *, timeout_seconds: float) -> bytes:
    """The bytes of the answer.

    Raises:
        AnswerRefused: the peer says no, with a status and why.
        AnswerBroken: the peer makes no sense, or ends the call.
        TimeoutError: nothing came in time.
        OSError: nobody listens at the socket, or the connection broke.
    """
    channel = _Channel(path=str(socket), codec=_RawCodec(), config=_CONFIG)
    call: UnaryUnaryMethod[bytes, bytes] = UnaryUnaryMethod(channel, method, bytes, bytes)
    try:
        async with asyncio.timeout(timeout_seconds):
            return await ask_apart(call(request, timeout=timeout_seconds))
    except GRPCError as error:
        raise AnswerRefused(error.status, error.message or "") from error
    except (StreamTerminatedError, AssertionError, AttributeError) as error:
        # The last two are how grpclib stumbles over a short answer, and over a peer that leaves before it is asked.
        raise AnswerBroken("the connection ended before the answer") from error
    except (ProtocolError, NotImplementedError) as error:  # the second is grpclib's word for a compressed answer
        raise AnswerBroken(str(error) or type(error).__name__) from error
    finally:
        channel.close()
