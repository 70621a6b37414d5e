"""A gRPC server on a unix socket: what is asked is answered, counted or refused, by whatever client."""

import asyncio
import json
import sys
from pathlib import Path

import anyio
import pytest
from grpclib.client import Channel, UnaryUnaryMethod
from grpclib.config import Configuration
from grpclib.const import Status
from grpclib.exceptions import GRPCError

from nodeagent.edge.grpc import serving as serving_one
from nodeagent.edge.grpc.calls import Replies, Streaming
from nodeagent.edge.grpc.server import open_grpc_server
from nodeagent.edge.kubelet.call_times import CallTimes
from nodeagent.edge.kubelet.plugin_server import PluginServer
from nodeagent.edge.kubelet.proto import device_plugin_pb2 as wire
from nodeagent.edge.kubelet.proto.device_plugin_grpc import DevicePluginStub, RegistrationStub
from nodeagent.model.errors import AllocationError, DeviceHeld, JournalUnavailable, RequestInvalid
from nodeagent.model.plugin import AdvertisedDevice
from tests.component.edge.kubelet.harness import Crashes, allocate_request, serving
from tests.fakes.device_plugin import FakeDevicePlugin, make_devices
from tests.support.waiting import in_thread, wait_until
from tests.support.wire.go_client import CallFailed, GoClient
from tests.support.wire.kubelets import no_crash


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


async def test_a_request_that_is_too_large_is_refused_at_once(short_dir: Path) -> None:
    """Also to a client that reads no answer before its question is out; the next call of that connection is served."""
    path = short_dir / "p.sock"
    huge = allocate_request(*(f"GPU-{number:028d}" for number in range(200_000)))
    assert huge.ByteSize() > 6_000_000
    async with serving(path, FakeDevicePlugin()) as (_, stub, _):
        with anyio.fail_after(20), pytest.raises(GRPCError, match="the limit is 4194304") as refused:
            await stub.Allocate(huge)
        assert refused.value.status is Status.RESOURCE_EXHAUSTED
        await stub.Allocate(allocate_request("GPU-0000"))
        command = [sys.executable, "-m", "tests.component.edge.kubelet.core_client", str(path), "6000000"]
        done = await anyio.run_process(command, cwd=Path(__file__).parents[4])
    assert json.loads(done.stdout) == ["RESOURCE_EXHAUSTED", "the message has 6000010 bytes, the limit is 4194304"]


async def test_a_request_without_end_is_thrown_away_up_to_a_limit(
    short_dir: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its caller gets no more room then."""
    monkeypatch.setattr(serving_one, "MAX_DISCARDED_BYTES", 8 << 20)
    path = short_dir / "p.sock"
    huge = allocate_request("x" * (20 << 20))
    async with serving(path, FakeDevicePlugin()) as (server, stub, _):
        with anyio.move_on_after(1) as waited:
            await stub.Allocate(huge)
        assert waited.cancelled_caught
        await wait_until(lambda: not server._unary)
