"""Questions to one peer over a connection that is kept, whatever becomes of the connection and of the peer."""

import asyncio
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, closing
from pathlib import Path
from typing import Any

import anyio
import pytest
from google.protobuf.message import Message

from nodeagent.edge.grpc import caller
from nodeagent.edge.grpc.caller import KeptCaller
from nodeagent.edge.grpc.calls import CallRefused, Unary
from nodeagent.edge.grpc.errors import AnswerBroken, AnswerRefused, Status
from nodeagent.edge.grpc.server import GrpcServer, open_grpc_server
from nodeagent.edge.kubelet.proto import device_plugin_pb2 as wire
from tests.support.wire.kubelets import no_crash

METHOD = "/test.Peer/Say"


class Peer:
    """Says its name, so often as it is asked; or keeps silent; or refuses."""

    def __init__(self, name: str) -> None:
        self.name, self.asked = name, 0
        self.refuses = self.is_silent = False

    async def say(self, _request: Message) -> Message:
        self.asked += 1
        if self.refuses:
            raise CallRefused(Status.RESOURCE_EXHAUSTED, "not now")
        if self.is_silent:
            await asyncio.Event().wait()
        return wire.Device(ID=self.name)


@asynccontextmanager
async def serving(path: Path, peer: Peer) -> AsyncIterator[GrpcServer]:
    async with open_grpc_server(path, {METHOD: Unary(wire.Empty, peer.say)}, no_crash) as server:
        yield server


async def ask(asking: KeptCaller, timeout_seconds: float = 10.0) -> str:
    answer = await asking.call_unary(METHOD, b"", timeout_seconds=timeout_seconds)
    return str(wire.Device.FromString(answer).ID)


@pytest.fixture
def arrivals(monkeypatch: pytest.MonkeyPatch) -> list[Any]:
    """The connections that reached any server."""
    seen: list[Any] = []
    arrive = GrpcServer.arrive

    def note(server: GrpcServer, line: Any) -> bool:
        seen.append(line)
        return arrive(server, line)

    monkeypatch.setattr(GrpcServer, "arrive", note)
    return seen


@pytest.fixture
def asking(short_dir: Path) -> Iterator[KeptCaller]:
    with closing(KeptCaller(short_dir / "peer.sock")) as caller_:
        yield caller_


@pytest.fixture
def path(short_dir: Path) -> Path:
    return short_dir / "peer.sock"


async def test_questions_share_a_connection(path: Path, asking: KeptCaller, arrivals: list[Any]) -> None:
    """One after the other and at once, and past a refusal."""
    peer = Peer("a")
    async with serving(path, peer):
        assert {*await asyncio.gather(ask(asking), ask(asking))} == {"a"}
        peer.refuses = True
        with pytest.raises(AnswerRefused, match="not now"):
            await ask(asking)
        peer.refuses = False
        assert await ask(asking) == "a"
        asking.close()
    assert len(arrivals) == 1


@pytest.mark.parametrize("is_noticed", [True, False])
async def test_a_connection_that_has_gone_is_made_anew(
    path: Path, asking: KeptCaller, arrivals: list[Any], *, is_noticed: bool
) -> None:
    """Whether the end has been seen before the next question or is found by it; nobody hears of it."""
    peer = Peer("a")
    async with serving(path, peer) as server:
        assert await ask(asking) == "a"
        server.close_connections()
        while is_noticed and server.connection_count:
            await anyio.lowlevel.checkpoint()
        assert await ask(asking) == "a"
        asking.close()
    assert len(arrivals) == 2


async def test_a_peer_that_starts_again_is_asked(path: Path, asking: KeptCaller) -> None:
    """Between its lives it is not there, which is said."""
    async with serving(path, Peer("a")):
        assert await ask(asking) == "a"
    with pytest.raises(OSError, match="No such file"):
        await ask(asking)
    async with serving(path, Peer("b")):
        assert await ask(asking) == "b"
        asking.close()


async def test_whoever_has_the_socket_now_is_asked(path: Path, asking: KeptCaller) -> None:
    """Not the one from before, though it still answers over the connection there is."""
    async with serving(path, Peer("before")):
        assert await ask(asking) == "before"
        async with serving(path, Peer("now")):
            assert await ask(asking) == "now"
            asking.close()


async def test_silence_is_not_waited_for_twice(path: Path, asking: KeptCaller, arrivals: list[Any]) -> None:
    """And the next question goes over another connection: who knows what is wrong with this one."""
    peer = Peer("a")
    async with serving(path, peer):
        assert await ask(asking) == "a"
        peer.is_silent = True
        with pytest.raises(TimeoutError):
            await ask(asking, timeout_seconds=0.05)
        assert peer.asked == 2
        peer.is_silent = False
        assert await ask(asking) == "a"
        asking.close()
    assert len(arrivals) == 2


async def test_a_cancelled_question_leaves_nothing_behind(path: Path, asking: KeptCaller) -> None:
    """Its answer can never be taken for that of the next."""
    peer = Peer("a")
    peer.is_silent = True
    async with serving(path, peer):
        with anyio.move_on_after(0.05) as scope:
            await ask(asking)
        assert scope.cancelled_caught
        peer.is_silent = False
        assert await ask(asking) == "a"
        asking.close()


async def test_a_new_connection_that_breaks_is_not_tried_again(path: Path, asking: KeptCaller) -> None:
    """A peer that always hangs up is not asked without end."""
    taken = 0

    def hang_up(_reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        nonlocal taken
        taken += 1
        writer.transport.abort()

    async with await asyncio.start_unix_server(hang_up, path):
        with pytest.raises((AnswerBroken, OSError)):
            await ask(asking)
    assert taken == 1


async def test_each_answer_has_bounds_of_its_own(
    path: Path, asking: KeptCaller, arrivals: list[Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    """However many there were before on the same connection; one that is too long is cut off all the same."""
    monkeypatch.setattr(caller, "MAX_ANSWER_BYTES", 1000)
    peer = Peer("a" * 600)
    async with serving(path, peer):
        for _ in range(50):
            assert await ask(asking) == peer.name
        assert len(arrivals) == 1
        peer.name = "a" * 1001
        with pytest.raises(AnswerBroken):
            await ask(asking)
        asking.close()
