"""A gRPC server on a unix socket, with independent clients, slow ones and broken ones."""

import asyncio
import gc
import json
import socket
import stat
import struct
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import anyio
import anyio.lowlevel
import pytest
from grpclib.client import Channel, Stream, UnaryUnaryMethod
from grpclib.config import Configuration
from grpclib.const import Status
from grpclib.exceptions import GRPCError, StreamTerminatedError

from nodeagent.edge.kubelet.call_times import CallTimes
from nodeagent.edge.kubelet.errors import SocketUnavailable
from nodeagent.edge.kubelet.plugin_server import PluginServer
from nodeagent.edge.kubelet.proto import device_plugin_pb2 as wire
from nodeagent.edge.kubelet.proto.device_plugin_grpc import DevicePluginStub, RegistrationStub
from nodeagent.edge.kubelet.wire import frames, server
from nodeagent.edge.kubelet.wire.connection import Connection, Replies, Streaming
from nodeagent.edge.kubelet.wire.grpc_status import encode_message
from nodeagent.edge.kubelet.wire.http2 import ServerConnection
from nodeagent.edge.kubelet.wire.sender import Sender
from nodeagent.edge.kubelet.wire.server import GrpcServer, open_grpc_server
from nodeagent.model.errors import AllocationError, DeviceHeld, JournalUnavailable, RequestInvalid
from nodeagent.model.plugin import AdvertisedDevice
from tests.fakes.device_plugin import FakeDevicePlugin, make_devices
from tests.support.go_client import CallFailed, GoClient
from tests.support.waiting import in_thread, wait_until

pytestmark = pytest.mark.anyio

Crashes = list[tuple[str, Exception]]


def no_crash(path: str, error: Exception) -> None:
    raise AssertionError(path) from error


def allocate_request(*devices: str) -> wire.AllocateRequest:
    return wire.AllocateRequest(container_requests=[wire.ContainerAllocateRequest(devices_ids=devices)])


@asynccontextmanager
async def serving(
    path: Path, plugin: FakeDevicePlugin, crashes: Crashes | None = None
) -> AsyncIterator[tuple[GrpcServer, DevicePluginStub, Channel]]:
    """The plugin behind a socket, and a client of the library in front of it."""
    report = no_crash if crashes is None else lambda path, error: crashes.append((path, error))
    methods = PluginServer(plugin, report, lambda _: None).methods()
    async with open_grpc_server(path, methods, report) as opened, Channel(path=str(path)) as channel:
        yield opened, DevicePluginStub(channel), channel


async def test_another_grpc_stack_understands_us(short_dir: Path) -> None:
    """A client of gRPC's C core lists, prefers, allocates 200 times and reads a refusal's text."""
    path = short_dir / "p.sock"
    async with serving(path, FakeDevicePlugin()):
        command = [sys.executable, "-m", "tests.component.edge.kubelet.core_client", str(path)]
        done = await anyio.run_process(command, cwd=Path(__file__).parents[4])
    found = json.loads(done.stdout)
    assert [device.id for device in make_devices(8)] == found["devices"]
    assert found["devices"][:4] == found["preferred"]
    assert [",".join(found["preferred"])] == found["allocated"]
    status, text = found["refusal"]
    assert status == "NOT_FOUND"
    assert text.endswith("unknown device: GPU-unknown")


async def test_the_kubelets_way_of_speaking_is_understood(short_dir: Path) -> None:
    """HPACK's memory, PINGs after answers, and a request of many frames, over one connection, 20 times."""
    path, devices = short_dir / "p.sock", make_devices(1600)

    def ask() -> list[int]:
        client, lengths = GoClient(path), []
        try:
            for number in range(20):
                offered = [device.id for device in devices[: 8 if number % 2 else 1600]]
                container = wire.ContainerPreferredAllocationRequest(available_deviceIDs=offered, allocation_size=4)
                request = wire.PreferredAllocationRequest(container_requests=[container])
                answer = client.call("/v1beta1.DevicePlugin/GetPreferredAllocation", request.SerializeToString())
                preferred = wire.PreferredAllocationResponse.FromString(answer).container_responses[0].deviceIDs
                client.call("/v1beta1.DevicePlugin/Allocate", allocate_request(*preferred).SerializeToString())
                lengths.append(len(preferred))
            with pytest.raises(CallFailed, match="unknown device"):
                client.call("/v1beta1.DevicePlugin/Allocate", allocate_request("GPU-x").SerializeToString())
        finally:
            client.close()
        return lengths

    async with serving(path, FakeDevicePlugin(devices)):
        assert await in_thread(ask) == [4] * 20


async def test_answers_are_counted_by_question_and_outcome(short_dir: Path) -> None:
    """Every answer to a preference or an Allocate is timed: given at once or awaited, refused or failed."""
    plugin, times, crashes = FakeDevicePlugin(), CallTimes(), Crashes()
    methods = PluginServer(plugin, lambda path, error: crashes.append((path, error)), lambda _: None, times).methods()

    def crash(path: str, error: Exception) -> None:
        crashes.append((path, error))

    path = short_dir / "p.sock"
    async with open_grpc_server(path, methods, crash), Channel(path=str(path)) as channel:
        stub = DevicePluginStub(channel)
        await stub.GetPreferredAllocation(wire.PreferredAllocationRequest())
        await stub.Allocate(allocate_request("GPU-0000"))
        with pytest.raises(GRPCError):
            await stub.Allocate(allocate_request("GPU-unknown"))
        plugin.crash = ValueError("a defect")
        with pytest.raises(GRPCError):
            await stub.Allocate(allocate_request("GPU-0000"))
    counted = {(call.method, call.outcome): sum(found.counts) for call, found in times.times.items()}
    assert counted == {
        ("GetPreferredAllocation", "ok"): 1,
        ("Allocate", "ok"): 1,
        ("Allocate", "refused"): 1,
        ("Allocate", "failed"): 1,
    }
    assert {call.resource for call in times.times} == {plugin.resource}


async def test_many_containers_in_one_request_are_answered_in_order(short_dir: Path) -> None:
    """The interface allows it, though no kubelet does it; the first that is refused refuses all."""
    plugin = FakeDevicePlugin()
    async with serving(short_dir / "p.sock", plugin) as (_, stub, _):
        request = allocate_request("GPU-0000")
        request.container_requests.add(devices_ids=["GPU-0001", "GPU-0002"])
        answer = await stub.Allocate(request)
        told = [response.envs["NVIDIA_VISIBLE_DEVICES"] for response in answer.container_responses]
        assert told == ["GPU-0000", "GPU-0001,GPU-0002"]
        request.container_requests.add(devices_ids=["GPU-unknown"])
        with pytest.raises(GRPCError, match="unknown device"):
            await stub.Allocate(request)


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


@pytest.mark.parametrize(
    ("refusal", "status"),
    [
        (DeviceHeld("GPU-1", "ml/train"), Status.FAILED_PRECONDITION),
        (JournalUnavailable("j", "disk full"), Status.UNAVAILABLE),
        (RequestInvalid("r", "twice"), Status.INVALID_ARGUMENT),
    ],
)
async def test_refusals_reach_the_caller(short_dir: Path, refusal: AllocationError, status: Status) -> None:
    """The text of a refusal, of Allocate or of PreStartContainer, is what the caller reads."""
    plugin = FakeDevicePlugin()
    plugin.refusal = refusal
    async with serving(short_dir / "p.sock", plugin) as (_, stub, _):
        for call in (
            stub.Allocate(allocate_request("GPU-0001")),
            stub.PreStartContainer(wire.PreStartContainerRequest(devices_ids=["GPU-0001"])),
        ):
            with pytest.raises(GRPCError) as refused:
                await call
            assert (status, str(refusal)) == (refused.value.status, refused.value.message)


async def test_crash_is_reported_and_answered(short_dir: Path) -> None:
    """A defect in the plugin fails the one call with INTERNAL and is reported; no preference is no failure."""
    plugin, crashes = FakeDevicePlugin(), Crashes()
    plugin.crash = ZeroDivisionError("oops")
    async with serving(short_dir / "p.sock", plugin, crashes) as (_, stub, _):
        with pytest.raises(GRPCError) as failed:
            await stub.Allocate(allocate_request("GPU-0001"))
        asked = wire.ContainerPreferredAllocationRequest(available_deviceIDs=["GPU-0001"], allocation_size=1)
        answer = await stub.GetPreferredAllocation(wire.PreferredAllocationRequest(container_requests=[asked]))
        plugin.crash = None
        await stub.Allocate(allocate_request("GPU-0001"))
    assert Status.INTERNAL is failed.value.status
    assert answer.container_responses[0].deviceIDs == []
    assert [plugin_error for _, plugin_error in crashes] == [crashes[0][1]] * 2


async def test_unknown_method_and_malformed_message(short_dir: Path) -> None:
    """A method that does not exist, and bytes that are no message, get the status codes of gRPC."""
    async with serving(short_dir / "p.sock", FakeDevicePlugin()) as (_, stub, channel):
        with pytest.raises(GRPCError) as unknown:
            await RegistrationStub(channel).Register(wire.RegisterRequest(version="v1beta1"))
        # Read as an AllocateRequest, this text is a container request that is cut short.
        confused = UnaryUnaryMethod(
            channel, "/v1beta1.DevicePlugin/Allocate", wire.RegisterRequest, wire.AllocateResponse
        )
        with pytest.raises(GRPCError) as malformed:
            await confused(wire.RegisterRequest(version="abc"))
        await stub.GetDevicePluginOptions(wire.Empty())
    assert Status.UNIMPLEMENTED is unknown.value.status
    assert Status.INVALID_ARGUMENT is malformed.value.status


async def test_large_lists_get_through(short_dir: Path) -> None:
    """A list of 20,000 devices, far beyond one window, arrives whole, and so does the next one."""
    path, plugin = short_dir / "p.sock", FakeDevicePlugin(make_devices(20_000))
    narrow = Configuration(http2_connection_window_size=65_535, http2_stream_window_size=65_535)
    async with (
        serving(path, plugin),
        Channel(path=str(path), config=narrow) as channel,
        DevicePluginStub(channel).ListAndWatch.open() as stream,
    ):
        await stream.send_message(wire.Empty(), end=True)
        first = await stream.recv_message()
        plugin.set_devices(make_devices(20_001))
        second = await stream.recv_message()
        await stream.cancel()
    assert first is not None
    assert second is not None
    assert (len(first.devices), len(second.devices)) == (20_000, 20_001)


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


def raw_call(path: str, body: bytes) -> bytes:
    fields = {":method": "POST", ":path": path, "content-type": "application/grpc"}
    block = b"".join(frames.encode_header(name.encode(), value.encode()) for name, value in fields.items())
    return frames.encode_frame(frames.HEADERS, frames.END_HEADERS, 1, block) + frames.encode_frame(
        frames.DATA, frames.END_STREAM, 1, body
    )


async def test_client_that_never_reads_is_not_read_from(short_dir: Path) -> None:
    """A flood of pings from a client that does not read stops at a bound; when it reads, all are answered."""
    path = short_dir / "p.sock"
    async with serving(path, FakeDevicePlugin()):
        with socket.socket(socket.AF_UNIX) as flood:
            flood.setblocking(False)
            flood.connect(str(path))
            flood.send(frames.PREFACE + frames.encode_settings({}))
            sent = await flood_until_refused(flood, frames.encode_frame(frames.PING, 0, 0, bytes(8)) * 1000)
            assert sent < 16 * 1024 * 1024
            pings, answers = sent // 17, b""
            with anyio.fail_after(20):
                while answers.count(frames.encode_frame(frames.PING, frames.ACK, 0, bytes(8))) < pings:
                    await anyio.wait_readable(flood)
                    answers += flood.recv(1 << 20)


async def flood_until_refused(flood: socket.socket, data: bytes) -> int:
    """Send until nothing is taken any more; returns how many bytes were."""
    sent = refused = 0
    while refused < 50:
        try:
            sent += flood.send(data[sent % len(data) :])
            refused = 0
        except BlockingIOError:
            refused += 1
        await anyio.sleep(0.001)
    return sent


async def test_allocate_goes_on_without_its_caller(short_dir: Path) -> None:
    """An Allocate whose caller has gone is carried to its end, so that what was written down is whole."""
    path, plugin = short_dir / "p.sock", FakeDevicePlugin()
    plugin.allocate_gate = asyncio.Event()
    async with serving(path, plugin) as (opened, stub, _):
        async with stub.Allocate.open() as stream:
            await stream.send_message(allocate_request("GPU-0001"), end=True)
            await wait_until(lambda: plugin.asked)
            await stream.cancel()
        await stub.GetDevicePluginOptions(wire.Empty())
        async with Channel(path=str(path)) as leaving, DevicePluginStub(leaving).Allocate.open() as stream:
            await stream.send_message(allocate_request("GPU-0002"), end=True)
            await wait_until(lambda: len(plugin.asked) == 2)
            leaving.close()
            await wait_until(lambda: opened.connection_count == 1)
        plugin.allocate_gate.set()
        await wait_until(lambda: plugin.allocated == [("GPU-0001",), ("GPU-0002",)])


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


async def test_stream_handler_may_end_by_itself(short_dir: Path) -> None:
    """A stream whose handler has nothing more to say ends with status 0."""

    async def two(_request: wire.Empty, replies: Replies) -> None:
        for count in (1, 2):
            await replies.send(wire.ListAndWatchResponse(devices=[wire.Device(ID=str(count))]))

    path = short_dir / "p.sock"
    methods = {"/v1beta1.DevicePlugin/ListAndWatch": Streaming(wire.Empty, two)}
    async with open_grpc_server(path, methods, no_crash), Channel(path=str(path)) as channel:
        lists = await DevicePluginStub(channel).ListAndWatch(wire.Empty())
    assert [message.devices[0].ID for message in lists] == ["1", "2"]


async def test_cancelled_stream_ends_its_handler(short_dir: Path) -> None:
    """When the client gives a stream up, its handler ends; the connection goes on."""
    plugin = FakeDevicePlugin()
    ended = anyio.Event()

    async def follow(known: tuple[AdvertisedDevice, ...] | None) -> tuple[AdvertisedDevice, ...]:
        if known is None:
            return make_devices(1)
        try:
            await anyio.sleep_forever()
        finally:
            ended.set()
        raise AssertionError("never reached")

    plugin.wait_devices = follow  # type: ignore[method-assign]
    async with serving(short_dir / "p.sock", plugin) as (_, stub, _):
        async with stub.ListAndWatch.open() as stream:
            await stream.send_message(wire.Empty(), end=True)
            await stream.recv_message()
            await stream.cancel()
        with anyio.fail_after(10):
            await ended.wait()
        await stub.GetDevicePluginOptions(wire.Empty())


async def test_garbage_ends_only_its_own_connection(short_dir: Path) -> None:
    """A connection that speaks nonsense is told so and closed; the next caller is served."""
    path = short_dir / "p.sock"
    async with serving(path, FakeDevicePlugin()) as (opened, stub, _):
        async with await anyio.connect_unix(str(path)) as nonsense:
            await nonsense.send(b"GET / HTTP/1.1\r\n\r\n")
            received = b""
            with anyio.fail_after(10):
                async for piece in nonsense:
                    received += piece
        assert b"preface" in received
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
    kinds = (Connection, ServerConnection, Sender)
    return sum(isinstance(thing, kinds) for thing in gc.get_objects())
