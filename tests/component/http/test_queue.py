"""Requests wait for one another in their order, and never too long."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import anyio
import anyio.lowlevel
import pytest

from nodeagent.edge.http.errors import ServerBusy
from nodeagent.edge.http.listeners import open_tcp_listener
from nodeagent.edge.http.messages import TEXT, Answer, Request, Response
from nodeagent.edge.http.queue import RequestQueue
from nodeagent.edge.http.routes import Route, Routes
from nodeagent.edge.http.server import ServerBounds, ServerLimits
from tests.component.http.test_server_limits import ask
from tests.support.waiting import wait_until
from tests.support.wire.http_server import make_server


class Handler:
    """Counts how many requests are answered at a time, and lets them end when it is told to."""

    def __init__(self) -> None:
        self.now = self.most = self.served = 0
        self.go_on = anyio.Event()

    async def answer(self, request: Request) -> Answer:
        self.now += 1
        self.most = max(self.most, self.now)
        await self.go_on.wait()
        self.now -= 1
        self.served += 1
        return Response(request.body, content_type=TEXT)


@asynccontextmanager
async def serve(
    handler: Handler, queue: RequestQueue | None = None, bodies: RequestQueue | None = None
) -> AsyncIterator[int]:
    """The port of a server whose requests wait."""
    routes = Routes([Route("POST", "/", handler.answer, queue=queue), Route("GET", "/", handler.answer)])
    limits = ServerLimits(body_bytes_max=100)
    with open_tcp_listener("127.0.0.1", 0, key="test") as listener:
        async with make_server(routes, bounds=ServerBounds(lambda: limits, bodies=bodies)).serving(listener):
            yield listener.getsockname()[1]


def post(body: str) -> str:
    return f"POST / HTTP/1.1\r\nHost: x\r\nConnection: close\r\nContent-Length: {len(body)}\r\n\r\n{body}"


async def test_those_that_wait_are_served_in_the_order_of_their_coming() -> None:
    """A small one does not go before a large one that was there first."""
    queue = RequestQueue(lambda: 4, wait_seconds=60)
    served: list[str] = []

    async def take(name: str, weight: int) -> None:
        async with queue.hold(weight):
            served.append(name)
            await anyio.lowlevel.checkpoint()

    async with anyio.create_task_group() as tasks:
        async with queue.hold(3):
            for name, weight in (("large", 4), ("small", 1), ("enormous", 9), ("last", 1)):
                tasks.start_soon(take, name, weight)
                await anyio.wait_all_tasks_blocked()
            assert served == []
    assert served == ["large", "small", "enormous", "last"]


@pytest.mark.virtual_time
async def test_who_waits_too_long_is_refused_and_in_nobodys_way() -> None:
    """And so is who is cancelled, before its turn and in the moment of it."""
    queue = RequestQueue(lambda: 2, wait_seconds=5)
    async with anyio.create_task_group() as tasks:
        async with queue.hold(1):
            with pytest.raises(ServerBusy):
                async with queue.hold(2):
                    pass
            with anyio.move_on_after(1):
                async with queue.hold(2):
                    pass

        async def take() -> None:
            async with queue.hold(2):
                await anyio.sleep_forever()

        held = queue.hold(2)
        await held.__aenter__()
        tasks.start_soon(take)
        await anyio.wait_all_tasks_blocked()
        await held.__aexit__(None, None, None)
        tasks.cancel_scope.cancel()
    with anyio.fail_after(1):
        async with queue.hold(2):
            pass


async def test_more_requests_than_are_served_at_a_time_wait() -> None:
    """Forty at once, four at a time: all are answered."""
    handler = Handler()
    answers: list[bytes] = []
    async with serve(handler, RequestQueue(lambda: 4, wait_seconds=60)) as port, anyio.create_task_group() as tasks:

        async def send() -> None:
            answers.append(await ask(port, post("hello")))

        for _ in range(40):
            tasks.start_soon(send)
        await wait_until(lambda: handler.now == 4)
        handler.go_on.set()
    assert (handler.most, handler.served) == (4, 40)
    assert all(answer.endswith(b"hello") for answer in answers)


async def test_a_request_that_waits_too_long_gets_503() -> None:
    handler = Handler()
    async with serve(handler, RequestQueue(lambda: 1, wait_seconds=0.01)) as port, anyio.create_task_group() as tasks:
        tasks.start_soon(ask, port, post("first"))
        await wait_until(lambda: handler.now == 1)
        answer = await ask(port, post("second"))
        handler.go_on.set()
    assert answer.startswith(b"HTTP/1.1 503 ")
    assert b"Retry-After: 1" in answer


async def test_bodies_together_are_never_longer_than_the_room_for_them() -> None:
    """One is not read before there is room; what has no body passes, and what is too long is told so."""
    handler = Handler()
    bodies = RequestQueue(lambda: 10, wait_seconds=0.01)
    async with serve(handler, bodies=bodies) as port, anyio.create_task_group() as tasks:
        tasks.start_soon(ask, port, post("sixsix"))
        await wait_until(lambda: handler.now == 1)
        refused = await ask(port, post("sixsix"))
        chunked = (
            "POST / HTTP/1.1\r\nHost: x\r\nConnection: close\r\nTransfer-Encoding: chunked\r\n\r\n1\r\nx\r\n0\r\n\r\n"
        )
        unmeasured = await ask(port, chunked)
        tasks.start_soon(ask, port, post("four"))
        tasks.start_soon(ask, port, "GET / HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n")
        await wait_until(lambda: handler.now == 3)
        handler.go_on.set()
    assert refused.startswith(b"HTTP/1.1 503 ")
    assert unmeasured.startswith(b"HTTP/1.1 503 ")
    async with serve(handler, bodies=bodies) as port:
        assert (await ask(port, post("x" * 101))).startswith(b"HTTP/1.1 413 ")
