"""Connections that say nothing, too little or too slowly, on real sockets."""

import errno
import socket
from collections.abc import AsyncIterator, Callable
from contextlib import AsyncExitStack, asynccontextmanager
from typing import Any

import anyio
import pytest
from anyio.abc import SocketAttribute, SocketStream

from nodeagent.core import acceptor
from nodeagent.edge.http.capacity import Capacity
from nodeagent.edge.http.connection_table import SLOW_SECONDS
from nodeagent.edge.http.hosts import AllowedHosts
from nodeagent.edge.http.listeners import open_tcp_listener
from nodeagent.edge.http.messages import TEXT, Answer, Request, Response, Stream
from nodeagent.edge.http.routes import Route, Routes
from nodeagent.edge.http.server import HttpServer, ServerBounds, ServerLimits
from tests.support.wire.broken_listener import BrokenListener
from tests.support.wire.http_server import fail, make_server

GET = b"GET / HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n"
PATIENCE_SECONDS = 20.0


class Site:
    """A page, one that never comes, and a stream without end."""

    def __init__(self) -> None:
        self.is_served, self.may_end, self.has_ended = anyio.Event(), anyio.Event(), anyio.Event()
        self.routes = Routes(
            [Route("GET", "/", self.hello), Route("GET", "/stay", self.stay), Route("GET", "/flood", self.flood)]
        )

    async def hello(self, _request: Request) -> Answer:
        return Response(b"hello", content_type=TEXT)

    async def stay(self, _request: Request) -> Answer:
        self.is_served.set()
        await self.may_end.wait()
        return Response(b"")

    async def flood(self, _request: Request) -> Answer:
        return Stream(self.parts())

    async def parts(self) -> AsyncIterator[bytes]:
        try:
            while True:
                yield b"x" * 262144
        finally:
            self.has_ended.set()


@asynccontextmanager
async def serve(
    site: Site | None = None, *, hosts: Callable[[], AllowedHosts] | None = None, **bounds: Any
) -> AsyncIterator[int]:
    with open_tcp_listener("127.0.0.1", 0, key="test") as listener:
        server = make_server((site or Site()).routes, bounds=ServerBounds(**bounds), hosts=hosts)
        async with server.serving(listener):
            yield listener.getsockname()[1]


@asynccontextmanager
async def connected(port: int, count: int, said: bytes = b"") -> AsyncIterator[list[SocketStream]]:
    """So many connections, one after the other, that say just this."""
    async with AsyncExitStack() as stack:
        streams = []
        for _ in range(count):
            stream = await stack.enter_async_context(await anyio.connect_tcp("127.0.0.1", port))
            if said:
                await stream.send(said)
            streams.append(stream)
        yield streams


async def hear(stream: SocketStream) -> bytes:
    """Everything until the other side closes or resets."""
    text = b""
    with anyio.fail_after(PATIENCE_SECONDS):
        try:
            while True:
                text += await stream.receive()
        except (anyio.EndOfStream, anyio.BrokenResourceError):
            return text


async def drip(stream: SocketStream) -> None:
    """A byte now and then."""
    while True:
        await stream.send(b"x")
        await anyio.sleep(0.05)


async def ask(port: int, request: bytes = GET) -> bytes:
    async with connected(port, 1, request) as (stream,):
        return await hear(stream)


async def test_silent_connections_make_room_for_one_that_speaks() -> None:
    """Many more than fit, from the same address: the oldest are closed, and each request is answered."""
    async with serve(connections=Capacity(8, 8)) as port, connected(port, 30) as streams:
        for _ in range(3):
            assert (await ask(port)).endswith(b"hello")
        for stream in streams[:20]:
            assert await hear(stream) == b""


async def test_who_leaves_without_a_word_frees_its_place_and_who_stays_is_let_go_at_the_end() -> None:
    """Closed, reset, or silent to the end: nothing is left of them, and nobody had to make room."""
    async with serve(connections=Capacity(2, 2)) as port:
        for linger in (b"\x00\x00\x00\x00\x00\x00\x00\x00", b"\x01\x00\x00\x00\x00\x00\x00\x00"):
            for _ in range(5):
                leaving = await anyio.connect_tcp("127.0.0.1", port)
                leaving.extra(SocketAttribute.raw_socket).setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, linger)
                await leaving.aclose()
        stays = await anyio.connect_tcp("127.0.0.1", port)
        assert (await ask(port)).endswith(b"hello")
        assert (await ask(port)).endswith(b"hello")
    async with stays:
        assert await hear(stays) == b""


async def test_where_everybody_is_served_a_newcomer_hears_503_at_once() -> None:
    """Whose request is in progress for less than a second is not cut off for another's."""
    site = Site()
    async with serve(site, connections=Capacity(1, 1)) as port:
        async with connected(port, 1, b"GET /stay HTTP/1.1\r\nHost: x\r\n\r\n"):
            with anyio.fail_after(PATIENCE_SECONDS):
                await site.is_served.wait()
            refused = await ask(port)
            assert refused.startswith(b"HTTP/1.1 503 ")
            assert b"Retry-After: 1\r\n" in refused
            await anyio.sleep(SLOW_SECONDS)  # then the slow one has had its time
            assert (await ask(port)).endswith(b"hello")
            site.may_end.set()


@pytest.mark.parametrize(
    ("said", "heard"),
    [
        (b"", b""),
        (b"G", b"HTTP/1.1 408 "),
        (b"GET / HTTP/1.1\r\nHost: x\r\nX-Never: e", b"HTTP/1.1 408 "),
    ],
)
async def test_headers_that_never_finish_end_within_the_time_for_reading(said: bytes, heard: bytes) -> None:
    """Whether nothing, a byte or half a header has come."""
    async with serve(requests=lambda: ServerLimits(read_seconds=0.3)) as port, connected(port, 1, said) as (stream,):
        before = anyio.current_time()
        assert (await hear(stream)).startswith(heard)
        assert anyio.current_time() - before < 10


async def test_half_of_a_second_request_ends_within_the_time_for_reading_too() -> None:
    """The time begins with its first bytes, not when the connection was opened or last answered."""
    async with serve(requests=lambda: ServerLimits(read_seconds=0.3)) as port:
        async with connected(port, 1, b"GET / HTTP/1.1\r\nHost: x\r\n\r\n") as (stream,):
            while b"hello" not in await stream.receive():
                pass
            await stream.send(b"GET / HTTP/1.1\r\n")
            assert (await hear(stream)).startswith(b"HTTP/1.1 408 ")


async def test_a_kept_connection_rests_after_a_body_as_after_any_request() -> None:
    """The last bytes of a body are not the first of another request."""
    async with serve(requests=lambda: ServerLimits(read_seconds=0.2)) as port:
        body = b"GET / HTTP/1.1\r\nHost: x\r\nContent-Length: 4\r\n\r\nbody"
        async with connected(port, 1, body) as (stream,):
            while b"hello" not in await stream.receive():
                pass
            await anyio.sleep(0.6)
            await stream.send(GET)
            answers = await hear(stream)
            assert b"408" not in answers
            assert answers.endswith(b"hello")


async def test_an_address_that_has_all_it_may_have_makes_room_for_itself() -> None:
    """A connection from another address stays."""
    async with serve(connections=Capacity(8, 2)) as port:
        async with await anyio.connect_tcp("127.0.0.1", port, local_host="127.0.0.2") as other, connected(port, 6):
            await other.send(GET)
            assert (await hear(other)).endswith(b"hello")


async def test_a_byte_now_and_then_does_not_put_the_end_off() -> None:
    """The time is for the whole header."""
    async with serve(requests=lambda: ServerLimits(read_seconds=0.5)) as port, connected(port, 1, b"GET / H") as (one,):
        with anyio.fail_after(PATIENCE_SECONDS), pytest.raises(anyio.BrokenResourceError):
            await drip(one)


async def test_a_kept_connection_may_rest_for_longer_than_a_header_may_take() -> None:
    """Prometheus asks every so often on the same connection."""
    async with serve(requests=lambda: ServerLimits(read_seconds=0.2)) as port:
        async with connected(port, 1, b"GET / HTTP/1.1\r\nHost: x\r\n\r\n") as (stream,):
            while b"hello" not in await stream.receive():
                pass
            await anyio.sleep(0.6)
            await stream.send(GET)
            assert (await hear(stream)).endswith(b"hello")


async def test_a_reader_that_does_not_read_its_stream_is_cut_off() -> None:
    """A stream waits for its reader no longer than an answer does."""
    site = Site()
    async with serve(site, requests=lambda: ServerLimits(write_seconds=0.3)) as port:
        async with connected(port, 1, b"GET /flood HTTP/1.1\r\nHost: x\r\n\r\n"):
            with anyio.fail_after(PATIENCE_SECONDS):
                await site.has_ended.wait()


async def test_a_head_never_streams() -> None:
    """It gets the headers and the connection goes on."""
    async with serve() as port:
        head = b"HEAD /flood HTTP/1.1\r\nHost: x\r\n\r\n"
        answer = await ask(port, head + GET)
        assert answer.startswith(b"HTTP/1.1 200 ")
        assert b"Content-Type: text/event-stream" in answer
        assert answer.endswith(b"hello")


async def test_without_descriptors_nothing_spins_and_one_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    """The server says it once a pause, makes room, and takes the caller when it can."""
    monkeypatch.setattr(acceptor, "PAUSE_SECONDS", 0.2)
    told: list[OSError] = []
    with open_tcp_listener("127.0.0.1", 0, key="test") as listener:
        dry = BrokenListener(listener, errno.EMFILE)
        server = HttpServer(Site().routes, on_error=fail, on_exhausted=told.append)
        async with server.serving(dry):  # type: ignore[arg-type]  # all of a socket that is asked for
            port = listener.getsockname()[1]
            dry.failures = 2
            assert (await ask(port)).endswith(b"hello")
    assert [error.errno for error in told] == [errno.EMFILE] * 2
    assert dry.attempts < 20


@pytest.mark.parametrize(
    ("request_line", "status"),
    [
        (b"GET / HTTP/1.1\r\nHost: 127.0.0.1:9400\r\n", b"200"),
        (b"GET / HTTP/1.1\r\nHost: gpu-7\r\n", b"200"),
        (b"GET / HTTP/1.0\r\n", b"200"),
        (b"GET / HTTP/1.1\r\n", b"400"),
        (b"GET / HTTP/1.1\r\nHost: attacker.example\r\n", b"421"),
        (b"GET /nothing HTTP/1.1\r\nHost: attacker.example\r\n", b"421"),
    ],
)
async def test_a_page_that_points_its_name_at_this_machine_reads_nothing(request_line: bytes, status: bytes) -> None:
    """Neither what there is, nor whether there is something."""
    hosts = AllowedHosts(("gpu-7",), ())
    async with serve(hosts=lambda: hosts) as port:
        answer = await ask(port, request_line + b"Connection: close\r\n\r\n")
    assert answer.split(b" ", 2)[1] == status
    assert (b"Server: nodeagent" in answer) is True
