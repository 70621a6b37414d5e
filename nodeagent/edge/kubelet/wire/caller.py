"""Calls of the kubelet: one question, one answer, over a unix socket and within a time."""

from pathlib import Path

import anyio

from nodeagent.edge.kubelet.wire.unary_call import AnswerBroken, UnaryCall


async def call_unary(socket: Path, method: str, request: bytes, *, timeout_seconds: float) -> bytes:
    """The bytes of the answer.

    Raises:
        AnswerRefused: the peer says no, with a status and why.
        AnswerBroken: the peer makes no sense, or ends the call.
        TimeoutError: nothing came in time.
        OSError: nobody listens at the socket, or the connection broke.
    """
    call = UnaryCall(method, request, timeout_seconds)
    try:
        with anyio.fail_after(timeout_seconds):
            async with await anyio.connect_unix(socket) as stream:
                await stream.send(call.opening)
                while call.answer is None:
                    reply = call.receive(await stream.receive())
                    if reply and call.answer is None:
                        await stream.send(reply)
                return call.answer
    except anyio.EndOfStream:
        raise AnswerBroken("the connection ended before the answer") from None
    except anyio.BrokenResourceError as error:
        raise ConnectionError("the connection broke") from error
