"""One client's slowness or greed costs nobody else anything."""

import socket
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import anyio

from nodeagent.edge.http.listeners import open_tcp_listener
from nodeagent.edge.http.messages import TEXT, Answer, Request, Response
from nodeagent.edge.http.routes import Route, Routes
from nodeagent.edge.http.server import ServerBounds, ServerLimits
from tests.component.http.test_connections import hear
from tests.support.wire.http_server import make_server

LARGE = b"x" * (8 * 1024 * 1024)
"""More than the kernel keeps for a reader that does not read."""


async def _large(_request: Request) -> Answer:
    return Response(LARGE, content_type=TEXT)


async def _echo(request: Request) -> Answer:
    return Response(request.body, content_type=TEXT)


@asynccontextmanager
async def serve(limits: ServerLimits, at_most: int = 1) -> AsyncIterator[int]:
    """The port of a server with a large page that only so many may read at a time."""
    routes = Routes(
        [Route("GET", "/large", _large, at_most=lambda: at_most), Route("GET", "/", _echo), Route("POST", "/", _echo)]
    )
    with open_tcp_listener("127.0.0.1", 0, key="test") as listener:
        async with make_server(routes, bounds=ServerBounds(lambda: limits)).serving(listener):
            yield listener.getsockname()[1]


async def ask(port: int, request: str) -> bytes:
    async with await anyio.connect_tcp("127.0.0.1", port) as stream:
        await stream.send(request.encode())
        return await hear(stream)


def get(path: str) -> str:
    return f"GET {path} HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n"


async def ask_until_served(port: int) -> bytes:
    """The large page, as soon as there is a place for its reader."""
    while True:
        answer = await ask(port, get("/large"))
        if b"200 OK" in answer:
            return answer
        await anyio.sleep(0.05)


async def test_a_slow_reader_delays_nobody_and_is_cut_off() -> None:
    """While one does not read, a second of the same page gets 503, other pages answer, and the first ends in time."""
    async with serve(ServerLimits(write_seconds=1.0)) as port:
        slow = await anyio.connect_tcp("127.0.0.1", port)
        async with slow:
            await slow.send(get("/large").encode())
            await slow.receive(100)
            busy = await ask(port, get("/large"))
            other = await ask(port, get("/"))
            with anyio.fail_after(20):
                again = await ask_until_served(port)
    assert b"503" in busy.split(b"\r\n", 1)[0]
    assert b"Retry-After: 1" in busy
    assert b"200 OK" in other
    assert again.endswith(b"xxx")


async def test_readers_within_the_limit_are_served_together() -> None:
    """Several Prometheus replicas fit."""
    answers: list[bytes] = []
    async with serve(ServerLimits(), at_most=4) as port, anyio.create_task_group() as tasks:

        async def read() -> None:
            answers.append(await ask(port, get("/large")))

        for _ in range(4):
            tasks.start_soon(read)
    assert [answer.count(b"x") > len(LARGE) - 10 for answer in answers] == [True] * 4


async def test_a_body_that_does_not_arrive_is_not_waited_for() -> None:
    """408 after the time for requests."""
    async with serve(ServerLimits(read_seconds=0.2)) as port:
        answer = await ask(port, "POST / HTTP/1.1\r\nHost: x\r\nContent-Length: 10\r\n\r\nhalf")
    assert b"408" in answer.split(b"\r\n", 1)[0]


async def test_a_body_that_arrives_in_pieces_is_whole() -> None:
    """What has arrived so far is not the body."""
    async with serve(ServerLimits()) as port, await anyio.connect_tcp("127.0.0.1", port) as stream:
        await stream.send(b"POST / HTTP/1.1\r\nHost: x\r\nContent-Length: 10\r\n\r\nfirst")
        await anyio.sleep(0.05)
        await stream.send(b"-last")
        with anyio.fail_after(20):
            answer = b""
            while b"first-last" not in answer:
                answer += await stream.receive()


async def test_a_body_without_a_length_is_limited_too() -> None:
    """Chunked bodies are counted while they arrive."""
    chunked = (
        "POST / HTTP/1.1\r\nHost: x\r\nConnection: close\r\nTransfer-Encoding: chunked\r\n\r\n5\r\n12345\r\n0\r\n\r\n"
    )
    async with serve(ServerLimits(body_bytes_max=4)) as port:
        answer = await ask(port, chunked)
    assert b"413" in answer.split(b"\r\n", 1)[0]


async def test_a_body_that_is_too_large_is_refused() -> None:
    """By its announced length, before it is read."""
    async with serve(ServerLimits(body_bytes_max=4)) as port:
        answer = await ask(port, "POST / HTTP/1.1\r\nHost: x\r\nConnection: close\r\nContent-Length: 5\r\n\r\n12345")
    assert b"413" in answer.split(b"\r\n", 1)[0]


async def test_a_reader_that_leaves_is_no_error() -> None:
    """A connection reset in the middle of an answer ends that answer and frees its place."""
    async with serve(ServerLimits()) as port:
        with socket.create_connection(("127.0.0.1", port)) as leaving:
            leaving.sendall(get("/large").encode())
            leaving.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, b"\x01\x00\x00\x00\x00\x00\x00\x00")
        with anyio.fail_after(20):
            await ask_until_served(port)
