"""Callers that mean harm: each costs a bounded amount of memory and time, and the kubelet is served beside it."""

import asyncio
import socket
import struct
import tracemalloc
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import ExitStack, asynccontextmanager
from functools import partial
from itertools import chain, count
from pathlib import Path
from typing import Self

import anyio
import pytest
from grpclib.client import Channel
from grpclib.exceptions import GRPCError

from nodeagent.edge.grpc import serving as one_caller
from nodeagent.edge.grpc.calls import encode_message
from nodeagent.edge.grpc.server import MAX_CALLERS, MAX_UNARY, GrpcServer
from nodeagent.edge.kubelet.proto import device_plugin_pb2 as wire
from nodeagent.edge.kubelet.proto.device_plugin_grpc import DevicePluginStub
from tests.component.edge.kubelet.harness import allocate_request, serving
from tests.fakes.device_plugin import FakeDevicePlugin, make_devices
from tests.support.waiting import wait_until
from tests.support.wire import http2_frames as frames
from tests.support.wire.raw_caller import ALLOCATE, GREETING, LIST_AND_WATCH, head, head_block, raw_call

SENT_AT_MOST = 16 * 1024 * 1024
"""What an attacker would send if nobody stopped it, of what a bound ends."""
FLOOD_BYTES = 256 * 1024
"""What an attacker sends of what only costs time: a leak of 16 bytes for each would be seen."""
FLOOD_PEAK_AT_MOST = 4 * 1024 * 1024
PEAK_AT_MOST = 16 * 1024 * 1024
"""What one attacker may cost; a request of 4 MiB is allowed."""
IDLE_CALLERS = 200
ONE_DEVICE = encode_message(allocate_request("GPU-0001").SerializeToString())


def streams() -> Iterator[int]:
    return count(1, 2)


def resets() -> Iterator[bytes]:
    for stream in streams():
        yield head(ALLOCATE, stream) + frames.encode_reset(stream, 8)


def abandoned_calls() -> Iterator[bytes]:
    for stream in streams():
        yield raw_call(ALLOCATE, ONE_DEVICE, stream) + frames.encode_reset(stream, 8)


def cancelled_lists() -> Iterator[bytes]:
    for stream in streams():
        yield raw_call(LIST_AND_WATCH, encode_message(b""), stream) + frames.encode_reset(stream, 8)


def too_many_streams() -> Iterator[bytes]:
    for stream in streams():
        yield head(ALLOCATE, stream)


def too_many_lists() -> Iterator[bytes]:
    for stream in streams():
        yield raw_call(LIST_AND_WATCH, encode_message(b""), stream)


def endless_header_block() -> Iterator[bytes]:
    yield frames.encode_frame(frames.HEADERS, 0, 1, head_block(ALLOCATE))
    while True:
        yield frames.encode_frame(frames.CONTINUATION, 0, 1, frames.encode_header(b"x" * 100, b"y" * 100))


def giant_header_blocks() -> Iterator[bytes]:
    block = head_block(ALLOCATE) + frames.encode_header(b"x" * 100, b"y" * 100) * 75
    for stream in streams():
        yield frames.encode_frame(frames.HEADERS, 0, stream, block)
        for number in range(40):
            flags = frames.END_HEADERS if number == 39 else 0
            yield frames.encode_frame(frames.CONTINUATION, flags, stream, block[-15_000:])


def requests_without_end() -> Iterator[bytes]:
    piece = bytes(16_000)
    for stream in streams():
        yield head(ALLOCATE, stream)
        yield frames.encode_frame(frames.DATA, 0, stream, struct.pack(">BI", 0, 4_000_000))
        for _ in range(200):
            yield frames.encode_frame(frames.DATA, 0, stream, piece)


def announced_too_large() -> Iterator[bytes]:
    for stream in streams():
        yield head(ALLOCATE, stream) + frames.encode_frame(frames.DATA, 0, stream, struct.pack(">BI", 0, 2**32 - 1))


def again_and_again(frame: bytes) -> Callable[[], Iterator[bytes]]:
    def flood() -> Iterator[bytes]:
        yield head(ALLOCATE, 1)
        while True:
            yield frame * 50

    return flood


BOUNDED: dict[str, Callable[[], Iterator[bytes]]] = {
    "too many streams": too_many_streams,
    "too many lists": too_many_lists,
    "an endless header block": endless_header_block,
    "giant header blocks": giant_header_blocks,
    "requests without end": requests_without_end,
    "announced too large": announced_too_large,
}
FLOODS: dict[str, Callable[[], Iterator[bytes]]] = {
    "resets": resets,
    "abandoned calls": abandoned_calls,
    "cancelled lists": cancelled_lists,
    "pings": again_and_again(frames.encode_frame(frames.PING, 0, 0, bytes(8))),
    "settings": again_and_again(frames.encode_settings({frames.SETTING_INITIAL_WINDOW_SIZE: 70_000})),
    "windows": again_and_again(frames.encode_window_update(0, 1)),
    "windows of a closed stream": again_and_again(frames.encode_window_update(1, 1)),
    "priorities": again_and_again(frames.encode_frame(frames.PRIORITY, 0, 3, bytes(5))),
    "frames that nobody knows": again_and_again(frames.encode_frame(0xC, 0, 0, bytes(8))),
    "empty data": again_and_again(frames.encode_frame(frames.DATA, 0, 1)),
}


def count_descriptors() -> int:
    """How many this process has open, its own end of each line included."""
    return sum(1 for _ in Path("/proc/self/fd").iterdir())


class Attacker:
    """A socket that sends what it is told, and says what became of it."""

    def __init__(self, path: Path) -> None:
        self.sent, self.hung_up = 0, False
        self._line = socket.socket(socket.AF_UNIX)
        self._line.setblocking(False)
        self._line.connect(str(path))

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._line.close()

    async def send(self, pieces: Iterator[bytes], most: int = SENT_AT_MOST) -> None:
        """Until nothing is taken any more, or enough was."""
        for data in pieces:
            rest = memoryview(data)
            while rest and not self.hung_up:
                try:
                    taken = self._line.send(rest)
                except BlockingIOError:
                    if not await self._has_room():
                        return
                except OSError:
                    self.hung_up = True
                else:
                    self.sent, rest = self.sent + taken, rest[taken:]
            if self.hung_up or self.sent > most:
                return

    async def wait_for_greeting(self) -> None:
        """Until the server has taken this caller and said hello."""
        with anyio.fail_after(5):
            await anyio.wait_readable(self._line)

    async def _has_room(self) -> bool:
        with anyio.move_on_after(1):
            await anyio.wait_writable(self._line)
            return True
        return False


@asynccontextmanager
async def attacked(path: Path, plugin: FakeDevicePlugin) -> AsyncIterator[tuple[GrpcServer, DevicePluginStub]]:
    """A plugin that has its kubelet already, which follows the list and allocates all the while."""
    async with serving(path, plugin) as (server, stub, _), stub.ListAndWatch.open() as following:
        await following.send_message(wire.Empty(), end=True)
        await following.recv_message()
        async with anyio.create_task_group() as tasks:

            async def allocate() -> None:
                while True:
                    with anyio.fail_after(5):
                        await stub.Allocate(allocate_request("GPU-0000"))
                    await anyio.sleep(0.01)

            tasks.start_soon(allocate)
            yield server, stub
            tasks.cancel_scope.cancel()
        plugin.set_devices(make_devices(3))
        with anyio.fail_after(5):
            await following.recv_message()
        await following.cancel()


@pytest.mark.nightly
@pytest.mark.parametrize("name", BOUNDED)
async def test_what_has_a_bound_is_cut_off_at_it(short_dir: Path, name: str) -> None:
    """The caller is hung up on, or not read from; memory stays bounded, calls too, and others are served."""
    sent = await flood(short_dir / "p.sock", BOUNDED[name](), SENT_AT_MOST, PEAK_AT_MOST)
    assert sent < SENT_AT_MOST


@pytest.mark.nightly
@pytest.mark.parametrize("name", FLOODS)
async def test_a_flood_costs_no_memory_and_keeps_nobody_waiting(short_dir: Path, name: str) -> None:
    """Whatever a caller sends: memory and calls stay bounded, the kubelet is served meanwhile, and nothing is left."""
    await flood(short_dir / "p.sock", FLOODS[name](), FLOOD_BYTES, FLOOD_PEAK_AT_MOST)


async def flood(path: Path, pieces: Iterator[bytes], most: int, peak_at_most: int) -> int:
    """How much of these pieces is taken from one caller, beside the kubelet."""
    async with attacked(path, FakeDevicePlugin()) as (server, _):
        with Attacker(path) as attacker:
            tracemalloc.start()
            try:
                await attacker.send(iter([GREETING]), most)
                await attacker.send(pieces, most)
                _, peak = tracemalloc.get_traced_memory()
            finally:
                tracemalloc.stop()
            assert peak < peak_at_most
            assert len(server._unary) <= MAX_UNARY
            assert len(server._streaming) <= one_caller.MAX_STREAMING + 1
        await wait_until(lambda: server.connection_count == 1)
    return attacker.sent


async def test_idle_connections_make_room(short_dir: Path) -> None:
    """Hundreds of connections take no more than their share; whoever comes to ask is served, whoever was stays."""
    path = short_dir / "p.sock"
    async with attacked(path, FakeDevicePlugin()) as (server, _):
        with ExitStack() as attackers:
            for _ in range(20):
                for _ in range(10):
                    attackers.enter_context(Attacker(path))
                await anyio.sleep(0.005)
                assert server.connection_count <= MAX_CALLERS
            await wait_until(lambda: server.connection_count == MAX_CALLERS)
            async with Channel(path=str(path)) as newcomer:
                await DevicePluginStub(newcomer).Allocate(allocate_request("GPU-0001"))
        await wait_until(lambda: server.connection_count == 1)


@pytest.mark.parametrize(
    "said", [b"", frames.PREFACE[:10], frames.PREFACE, GREETING], ids=["nothing", "half", "preface", "greeting"]
)
async def test_idle_callers_cost_few_descriptors(short_dir: Path, said: bytes) -> None:
    """Two hundred that say no more than hello keep those of as many callers as there are places, and only till then."""
    path = short_dir / "p.sock"
    async with attacked(path, FakeDevicePlugin()) as (server, _):
        before = count_descriptors()
        with ExitStack() as attackers:
            for number in range(1, IDLE_CALLERS + 1):
                attacker = attackers.enter_context(Attacker(path))
                await attacker.send(iter([said]))
                await attacker.wait_for_greeting()
                assert count_descriptors() - before - number <= MAX_CALLERS
            assert server.connection_count == MAX_CALLERS
            async with Channel(path=str(path)) as newcomer:
                with anyio.fail_after(5):
                    await DevicePluginStub(newcomer).Allocate(allocate_request("GPU-0001"))
        await wait_until(lambda: server.connection_count == 1)
        assert count_descriptors() <= before


async def test_callers_that_are_busy_are_not_put_out(short_dir: Path) -> None:
    """When all have something to wait for, it is the newcomer that is turned away."""
    path = short_dir / "p.sock"
    async with attacked(path, FakeDevicePlugin()) as (server, _):
        with ExitStack() as attackers:
            for _ in range(MAX_CALLERS - 1):
                follower = attackers.enter_context(Attacker(path))
                await follower.send(iter([GREETING + raw_call(LIST_AND_WATCH, encode_message(b""))]))
            await wait_until(lambda: len(server._streaming) == MAX_CALLERS)
            newcomer = attackers.enter_context(Attacker(path))
            await newcomer.send(GREETING for _ in range(100_000))
            assert newcomer.hung_up


@pytest.mark.parametrize(
    "settings", [{frames.SETTING_INITIAL_WINDOW_SIZE: 0}, {frames.SETTING_INITIAL_WINDOW_SIZE: 2**31 - 1}]
)
async def test_a_caller_that_takes_no_answer_is_left(
    short_dir: Path, monkeypatch: pytest.MonkeyPatch, settings: dict[int, int]
) -> None:
    """Whether its windows are shut or it never reads, its answers wait for a bounded time and its calls are few."""
    monkeypatch.setattr(one_caller, "TAKE_SECONDS", 0.5)
    path, plugin = short_dir / "p.sock", FakeDevicePlugin(make_devices(20_000))
    async with attacked(path, plugin) as (server, _):
        opening = frames.PREFACE + frames.encode_settings(settings) + frames.encode_window_update(0, 2**30)
        lists = (raw_call(LIST_AND_WATCH, encode_message(b""), stream) for stream in range(1, 40, 2))
        calls = (raw_call(ALLOCATE, ONE_DEVICE, stream) for stream in range(41, 90, 2))
        with Attacker(path) as attacker:
            await attacker.send(chain([opening], lists, calls))
            await wait_until(lambda: server.connection_count == 1)
            assert len(server._streaming) == 1


async def test_abandoned_calls_are_bounded(short_dir: Path) -> None:
    """A disk that hangs and callers that come, ask and go: beyond a number of calls the next is told so."""
    path, plugin = short_dir / "p.sock", FakeDevicePlugin()
    async with serving(path, plugin) as (server, stub, _):
        plugin.allocate_gate = asyncio.Event()
        for _ in range(MAX_UNARY // 50 + 1):
            asked = min(MAX_UNARY, len(server._unary) + 50)
            with Attacker(path) as attacker:
                await attacker.send(iter([GREETING, *(raw_call(ALLOCATE, ONE_DEVICE, 2 * n + 1) for n in range(50))]))
                await wait_until(partial(lambda asked: len(server._unary) >= asked, asked))
        with pytest.raises(GRPCError, match="too many calls"):
            await stub.Allocate(allocate_request("GPU-0000"))
        assert len(server._unary) == MAX_UNARY
        plugin.allocate_gate.set()
        await wait_until(lambda: not server._unary)
        await stub.Allocate(allocate_request("GPU-0000"))
