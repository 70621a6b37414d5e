"""The HTTP edge on real sockets."""

import http.client
import os
import socket
from collections.abc import AsyncIterator
from pathlib import Path

import anyio
import pytest
from anyio import to_thread

from nodeagent.edge.http.errors import ListenFailed
from nodeagent.edge.http.listeners import open_tcp_listener, open_unix_listener
from nodeagent.edge.http.messages import TEXT, Answer, Request, Response, Stream
from nodeagent.edge.http.routes import Route, Routes
from nodeagent.edge.http.server import ServerLimits
from tests.support.wire.http_server import make_server


class Site:
    """Handlers that do what a test asks for, and what the server told of them."""

    def __init__(self) -> None:
        self.errors: list[tuple[str, Exception]] = []
        self.stream_ended = anyio.Event()
        self.server = make_server(
            Routes(
                [
                    Route("GET", "/echo/{word}", self.echo),
                    Route("POST", "/body", self.body),
                    Route("GET", "/peer", self.peer),
                    Route("GET", "/fail", self.fail),
                    Route("GET", "/stream", self.stream),
                ]
            ),
            on_error=lambda request, error: self.errors.append((request, error)),
        )

    async def echo(self, request: Request) -> Answer:
        text = f"{request.arguments['word']} {request.query.get('q')} {request.headers.get('x-test')}"
        return Response(text.encode(), content_type=TEXT, headers={"X-Answer": "yes"})

    async def body(self, request: Request) -> Answer:
        return Response(str(len(request.body)).encode())

    async def peer(self, request: Request) -> Answer:
        return Response(f"{request.peer.pid} {request.peer.uid}".encode())

    async def fail(self, request: Request) -> Answer:
        raise RuntimeError("secret detail")

    async def stream(self, request: Request) -> Answer:
        return Stream(self.count())

    async def count(self) -> AsyncIterator[bytes]:
        try:
            number = 0
            while True:
                number += 1
                yield b"data: %d\n\n" % number
                await anyio.sleep(0.01)
        finally:
            self.stream_ended.set()


def ask(
    address: tuple[str, int] | Path,
    method: str,
    path: str,
    body: bytes | None = None,
    headers: dict[str, str] | None = None,
) -> tuple[int, bytes, dict[str, str]]:
    """One request from outside the loop."""
    if isinstance(address, Path):
        connection = http.client.HTTPConnection("localhost")
        connection.sock = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        connection.sock.connect(str(address))
    else:
        connection = http.client.HTTPConnection(*address, timeout=20)
    try:
        connection.request(method, path, body, headers or {})
        answer = connection.getresponse()
        return answer.status, answer.read(), dict(answer.getheaders())
    finally:
        connection.close()


async def test_requests_reach_their_handler_whole() -> None:
    """Path arguments, query and headers arrive; status, headers and body go back."""
    site = Site()
    with open_tcp_listener("127.0.0.1", 0, key="k") as listener:
        async with site.server.serving(listener):
            address = listener.getsockname()
            status, body, headers = await to_thread.run_sync(ask, address, "GET", "/echo/a?q=b", None, {"X-Test": "c"})
            assert (status, body, headers["X-Answer"]) == (200, b"a b c", "yes")
            assert (await to_thread.run_sync(ask, address, "HEAD", "/echo/a"))[:2] == (200, b"")
            assert (await to_thread.run_sync(ask, address, "GET", "/nothing"))[0] == 404
            assert (await to_thread.run_sync(ask, address, "PUT", "/body"))[0] == 405
            assert (await to_thread.run_sync(ask, address, "POST", "/body", b"1234"))[1] == b"4"


async def test_bodies_are_bounded() -> None:
    """A body over the limit is refused, whether or not its length was announced."""
    site = Site()
    with open_tcp_listener("127.0.0.1", 0, key="k") as listener:
        async with site.server.serving(listener):
            address = listener.getsockname()
            large = bytes(ServerLimits().body_bytes_max + 1)
            assert (await to_thread.run_sync(ask, address, "POST", "/body", large))[0] == 413


async def test_a_failing_handler_tells_the_log_and_not_the_client() -> None:
    site = Site()
    with open_tcp_listener("127.0.0.1", 0, key="k") as listener:
        async with site.server.serving(listener):
            status, body, _ = await to_thread.run_sync(ask, listener.getsockname(), "GET", "/fail")
            assert status == 500
            assert b"secret" not in body
            assert str(site.errors[0][1]) == "secret detail"


async def test_a_stream_ends_with_its_client() -> None:
    """A client that leaves costs nothing any more."""
    site = Site()
    with open_tcp_listener("127.0.0.1", 0, key="k") as listener:
        async with site.server.serving(listener):
            async with await anyio.connect_tcp(*listener.getsockname()) as client:
                await client.send(b"GET /stream HTTP/1.1\r\nHost: a\r\n\r\n")
                heard = b""
                while b"data: 3" not in heard:
                    heard += await client.receive()
            with anyio.fail_after(20):
                await site.stream_ended.wait()


async def test_the_kernel_vouches_for_a_unix_peer(short_dir: Path) -> None:
    """Over a unix socket the peer is known by pid and uid, over TCP by nothing."""
    site = Site()
    path = short_dir / "s.sock"
    with open_unix_listener(path, key="k", mode=0o600) as unix, open_tcp_listener("127.0.0.1", 0, key="k") as tcp:
        assert path.stat().st_mode & 0o777 == 0o600
        async with site.server.serving(unix), site.server.serving(tcp):
            assert (await to_thread.run_sync(ask, path, "GET", "/peer"))[1] == f"{os.getpid()} {os.geteuid()}".encode()
            assert (await to_thread.run_sync(ask, tcp.getsockname(), "GET", "/peer"))[1] == b"-1 -1"


async def test_a_listener_can_be_served_again() -> None:
    """A restarted web component takes up the same address, and nobody is refused in between."""
    site = Site()
    with open_tcp_listener("127.0.0.1", 0, key="k") as listener:
        for _ in range(2):
            async with site.server.serving(listener):
                assert (await to_thread.run_sync(ask, listener.getsockname(), "GET", "/echo/a"))[0] == 200


def test_an_address_in_use_names_setting_and_remedy() -> None:
    """The person who started a second agent learns what to do."""
    with (
        open_tcp_listener("127.0.0.1", 0, key="http.listen") as first,
        pytest.raises(ListenFailed, match=r"http\.listen\): address already in use"),
    ):
        open_tcp_listener("127.0.0.1", first.getsockname()[1], key="http.listen")


def test_an_impossible_address_is_refused() -> None:
    """An address of another machine cannot be listened on."""
    with pytest.raises(ListenFailed, match="cannot assign"):
        open_tcp_listener("192.0.2.1", 0, key="http.listen")


def test_a_stale_socket_is_replaced_and_a_living_one_is_not(short_dir: Path) -> None:
    """What a killed agent left behind is in nobody's way; what a running one uses is safe."""
    path = short_dir / "s.sock"
    open_unix_listener(path, key="k", mode=0o600).close()
    assert path.exists()
    with (
        open_unix_listener(path, key="k", mode=0o600),
        pytest.raises(ListenFailed, match="another process listens there"),
    ):
        open_unix_listener(path, key="k", mode=0o600)


def test_a_file_in_the_way_is_left_alone(short_dir: Path) -> None:
    """Something that is no socket is never deleted for one."""
    path = short_dir / "s.sock"
    path.write_text("precious")
    with pytest.raises(ListenFailed, match="a file that is no socket is in the way"):
        open_unix_listener(path, key="k", mode=0o600)
    assert path.read_text() == "precious"
