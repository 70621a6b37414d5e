"""A gRPC server's socket and those who are connected to it: slow ones, broken ones, and the end of all."""

import asyncio
import gc
import socket
import stat
import struct
from pathlib import Path

import anyio
import pytest
from grpclib.client import Channel, Stream
from grpclib.exceptions import GRPCError, StreamTerminatedError
from h2.connection import H2Connection

from nodeagent.edge.grpc import connection, server
from nodeagent.edge.grpc.calls import encode_message
from nodeagent.edge.grpc.errors import SocketUnavailable
from nodeagent.edge.grpc.server import GrpcServer
from nodeagent.edge.grpc.serving import Call, Caller, ServerConnection
from nodeagent.edge.kubelet.proto import device_plugin_pb2 as wire
from nodeagent.edge.kubelet.proto.device_plugin_grpc import DevicePluginStub
from tests.component.edge.kubelet.harness import allocate_request, serving
from tests.fakes.device_plugin import FakeDevicePlugin, make_devices
from tests.support.waiting import wait_until
from tests.support.wire import http2_frames as frames
from tests.support.wire.kubelets import no_crash
from tests.support.wire.raw_caller import raw_call


async def test_socket_is_ours_alone(short_dir: Path) -> None:
    """The socket file has mode 0600, replaces one that was left behind, and is gone at the end."""
    path = short_dir / "p.sock"
    path.touch()
    async with serving(path, FakeDevicePlugin()) as (opened, _, _):
        assert stat.S_IMODE(path.stat().st_mode) == 0o600
        assert opened.owns_file()
        assert directory_listing(short_dir) == ["p.sock"]
    assert not path.exists()


async def test_foreign_file_is_left_alone(short_dir: Path) -> None:
    """A file that somebody has put in our socket's place is seen, and not removed at the end."""
    path = short_dir / "p.sock"
    async with serving(path, FakeDevicePlugin()) as (opened, _, _):
        path.unlink()
        assert not opened.owns_file()
        path.touch()
        assert not opened.owns_file()
    assert path.exists()


@pytest.mark.parametrize(
    ("name", "reason"), [("x" * 120, "bytes too long"), ("missing/p.sock", "No such file"), ("taken", "directory")]
)
async def test_unusable_path_is_one_clear_error(short_dir: Path, name: str, reason: str) -> None:
    """A path that cannot carry a socket is named, with the reason, and leaves nothing open."""
    (short_dir / "taken").mkdir()
    with pytest.raises(SocketUnavailable, match=reason) as failed:
        await GrpcServer(short_dir / name, {}, anyio.create_task_group(), no_crash).listen()
    assert str(short_dir / name) in str(failed.value)


async def test_rebinding_keeps_connections(short_dir: Path) -> None:
    """A socket file that was removed is put back; the calls of those already connected go on."""
    path = short_dir / "p.sock"
    async with serving(path, FakeDevicePlugin()) as (opened, stub, _):
        await stub.GetDevicePluginOptions(wire.Empty())
        path.unlink()
        await opened.listen()
        await stub.GetDevicePluginOptions(wire.Empty())
        async with Channel(path=str(path)) as newcomer:
            await DevicePluginStub(newcomer).GetDevicePluginOptions(wire.Empty())
        assert 1 <= opened.connection_count <= 2


async def test_slow_client_slows_only_itself(short_dir: Path) -> None:
    """A client that reads nothing of a long list holds up neither others nor the list's later changes."""
    path = short_dir / "p.sock"
    plugin = FakeDevicePlugin(make_devices(20_000))
    async with serving(path, plugin) as (opened, stub, _):
        with socket.socket(socket.AF_UNIX) as slow:
            slow.connect(str(path))
            window = frames.encode_settings({frames.SETTING_INITIAL_WINDOW_SIZE: 2**31 - 1})
            slow.sendall(frames.PREFACE + window + frames.encode_window_update(0, 2**30))
            slow.sendall(raw_call("/v1beta1.DevicePlugin/ListAndWatch", encode_message(b"")))
            await wait_until(lambda: opened.connection_count)
            for size in range(1, 50):
                plugin.set_devices(make_devices(size))
                await stub.Allocate(allocate_request("GPU-0000"))
    assert len(plugin.allocated) == 49


async def read_end(stream: Stream[wire.Empty, wire.ListAndWatchResponse]) -> None:
    await stream.recv_message()
    await stream.recv_trailing_metadata()


def directory_listing(directory: Path) -> list[str]:
    return [path.name for path in directory.iterdir()]


async def test_stopping_finishes_calls_in_progress(short_dir: Path) -> None:
    """At the end, an Allocate in progress is answered, a stream is ended, and a new call is turned away."""
    plugin = FakeDevicePlugin()
    plugin.allocate_gate = asyncio.Event()
    answers: list[str] = []
    stopping = anyio.Event()
    async with anyio.create_task_group() as tasks, Channel(path=str(short_dir / "p.sock")) as channel:
        stub = DevicePluginStub(channel)

        async def serve() -> None:
            async with serving(short_dir / "p.sock", plugin):
                await stopping.wait()

        async def ask() -> None:
            answer = await stub.Allocate(allocate_request("GPU-0001"))
            answers.append(answer.container_responses[0].envs["NVIDIA_VISIBLE_DEVICES"])

        tasks.start_soon(serve)
        await wait_until((short_dir / "p.sock").exists)
        async with stub.ListAndWatch.open() as stream:
            await stream.send_message(wire.Empty(), end=True)
            await stream.recv_message()
            tasks.start_soon(ask)
            await wait_until(lambda: plugin.asked)
            stopping.set()
            with pytest.raises(GRPCError, match="stopping"):
                await read_end(stream)
        with pytest.raises(GRPCError, match="stopping"):
            await stub.Allocate(allocate_request("GPU-0002"))
        assert not answers
        plugin.allocate_gate.set()
        await wait_until(lambda: answers)
    assert answers == ["GPU-0001"]


async def test_stopping_is_bounded(short_dir: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A call that never ends and a client that never leaves hold up the end for a bounded time only."""
    monkeypatch.setattr(server, "DRAIN_SECONDS", 0.05)
    monkeypatch.setattr(server, "LEAVE_SECONDS", 0.05)
    monkeypatch.setattr(connection, "LEAVE_SECONDS", 0.05)
    plugin = FakeDevicePlugin(make_devices(20_000))
    plugin.allocate_gate = asyncio.Event()
    with socket.socket(socket.AF_UNIX) as stuck:
        async with serving(short_dir / "p.sock", plugin) as (opened, _, _):
            stuck.connect(str(short_dir / "p.sock"))
            stuck.sendall(frames.PREFACE + frames.encode_settings({frames.SETTING_INITIAL_WINDOW_SIZE: 2**31 - 1}))
            stuck.sendall(frames.encode_window_update(0, 2**30))
            stuck.sendall(raw_call("/v1beta1.DevicePlugin/ListAndWatch", encode_message(b"")))
            later = raw_call("/v1beta1.DevicePlugin/Allocate", encode_message(b"\x0a\x00"))
            stuck.sendall(later.replace(struct.pack(">I", 1), struct.pack(">I", 3)))
            await wait_until(lambda: opened.connection_count)
            await anyio.sleep(0.05)
        assert opened.connection_count == 0


async def test_garbage_ends_only_its_own_connection(short_dir: Path) -> None:
    """A connection that speaks nonsense is told so and closed; the next caller is served."""
    path = short_dir / "p.sock"
    async with serving(path, FakeDevicePlugin()) as (opened, stub, _):
        async with await anyio.connect_unix(str(path)) as nonsense:
            await nonsense.send(b"GET / HTTP/1.1\r\n\r\n")
            with anyio.fail_after(10):
                async for _ in nonsense:
                    pass
        await stub.GetDevicePluginOptions(wire.Empty())
        await wait_until(lambda: opened.connection_count == 1)


async def test_hanging_up_ends_all_connections(short_dir: Path) -> None:
    """The server can hang up on everybody, and then serves who calls again."""
    async with serving(short_dir / "p.sock", FakeDevicePlugin()) as (opened, stub, _):
        async with stub.ListAndWatch.open() as stream:
            await stream.send_message(wire.Empty(), end=True)
            await stream.recv_message()
            opened.close_connections()
            with pytest.raises(StreamTerminatedError):
                await stream.recv_message()
        await stub.GetDevicePluginOptions(wire.Empty())


@pytest.mark.long
async def test_callers_that_come_and_go_leave_nothing(short_dir: Path) -> None:
    """After hundreds of callers, polite, rude and broken ones, there is no more in memory than after the first."""
    path = short_dir / "p.sock"

    async def visit(opened: GrpcServer) -> None:
        async with Channel(path=str(path)) as channel, DevicePluginStub(channel).ListAndWatch.open() as stream:
            await stream.send_message(wire.Empty(), end=True)
            await stream.recv_message()
            await stream.cancel()
        async with await anyio.connect_unix(str(path)) as rude:
            await rude.send(frames.PREFACE + frames.encode_settings({}) + raw_call("/x", encode_message(b""))[:-3])
            await rude.receive()
        async with await anyio.connect_unix(str(path)) as broken:
            await broken.send(b"nonsense")
            await broken.receive()
        await wait_until(lambda: opened.connection_count == 0)

    async with serving(path, FakeDevicePlugin()) as (opened, _, _):
        await visit(opened)
        before = count_server_objects()
        for _ in range(100):
            await visit(opened)
        await wait_until(lambda: count_server_objects() <= before)


def count_server_objects() -> int:
    gc.collect()
    kinds = (Call, Caller, H2Connection, ServerConnection)
    return sum(isinstance(thing, kinds) for thing in gc.get_objects())
