"""A device plugin that is not ours, small enough to read: eight devices, nothing remembered, nothing written down.

`make bench PLUGIN="python -m tests.bench.example_plugin {dir}"` measures it as any other; it shows what a plugin must
do to be measured: serve beside `{dir}/device-plugins/kubelet.sock` and register there. `--on` says what serves it:
gRPC's C core, grpclib's own server, or the agent's house about grpclib. Since it does nothing, what a pair takes with
it is the least that a plugin on that can take; `tests/bench/idle` is the same on gRPC for Go.
"""

import argparse
import asyncio
import threading
from collections.abc import Callable, Iterator
from concurrent import futures
from pathlib import Path
from typing import Any

import grpc
from google.protobuf.message import Message
from grpclib.const import Cardinality, Handler
from grpclib.server import Server, Stream

from nodeagent.edge.grpc.calls import Replies, Streaming, Unary
from nodeagent.edge.grpc.server import open_grpc_server
from nodeagent.edge.kubelet.proto import device_plugin_pb2 as wire

ENDPOINT, RESOURCE, DEVICES = "example.sock", "example.com/thing", 8
SERVICE, LIST = "v1beta1.DevicePlugin", "ListAndWatch"
OPTIONS = wire.DevicePluginOptions(get_preferred_allocation_available=True)
THE_LIST = wire.ListAndWatchResponse(
    devices=[wire.Device(ID=f"thing-{number}", health="Healthy") for number in range(DEVICES)]
)


def get_options(_request: Any) -> Message:
    return OPTIONS


def prefer(request: Any) -> Message:
    answers = [
        wire.ContainerPreferredAllocationResponse(deviceIDs=sorted(one.available_deviceIDs)[: one.allocation_size])
        for one in request.container_requests
    ]
    return wire.PreferredAllocationResponse(container_responses=answers)


def allocate(request: Any) -> Message:
    answers = [
        wire.ContainerAllocateResponse(envs={"THINGS": ",".join(one.devices_ids)}) for one in request.container_requests
    ]
    return wire.AllocateResponse(container_responses=answers)


Answer = Callable[[Any], Message]
METHODS: dict[str, tuple[Answer, type[Message], type[Message]]] = {
    "GetDevicePluginOptions": (get_options, wire.Empty, wire.DevicePluginOptions),
    "GetPreferredAllocation": (prefer, wire.PreferredAllocationRequest, wire.PreferredAllocationResponse),
    "Allocate": (allocate, wire.AllocateRequest, wire.AllocateResponse),
}


def serve_on_core(directory: Path) -> None:
    """By gRPC's C core."""

    def answering(answer: Answer) -> Callable[[Any, Any], Message]:
        return lambda request, _context: answer(request)

    def list_and_watch(_request: Any, _context: Any) -> Iterator[Message]:
        yield THE_LIST
        threading.Event().wait()

    def write(message: Message) -> bytes:
        return message.SerializeToString()

    handlers = {
        name: grpc.unary_unary_rpc_method_handler(answering(answer), kind.FromString, write)
        for name, (answer, kind, _) in METHODS.items()
    }
    handlers[LIST] = grpc.unary_stream_rpc_method_handler(list_and_watch, wire.Empty.FromString, write)
    server = grpc.server(futures.ThreadPoolExecutor(max_workers=4))
    server.add_generic_rpc_handlers((grpc.method_handlers_generic_handler(SERVICE, handlers),))
    server.add_insecure_port(f"unix:{directory / ENDPOINT}")
    server.start()
    register(directory)
    server.wait_for_termination()


class _Plugin:
    """As grpclib's server wants it."""

    def __mapping__(self) -> dict[str, Handler]:
        def answering(answer: Answer) -> Callable[[Stream[Any, Any]], Any]:
            async def handle(stream: Stream[Any, Any]) -> None:
                await stream.send_message(answer(await stream.recv_message()))

            return handle

        async def list_and_watch(stream: Stream[Any, Any]) -> None:
            await stream.recv_message()
            await stream.send_message(THE_LIST)
            await asyncio.Event().wait()

        unary = {
            f"/{SERVICE}/{name}": Handler(answering(answer), Cardinality.UNARY_UNARY, kind, reply)
            for name, (answer, kind, reply) in METHODS.items()
        }
        kinds = (wire.Empty, wire.ListAndWatchResponse)
        return unary | {f"/{SERVICE}/{LIST}": Handler(list_and_watch, Cardinality.UNARY_STREAM, *kinds)}


async def serve_on_grpclib(directory: Path) -> None:
    server = Server([_Plugin()])
    await server.start(path=str(directory / ENDPOINT))
    await asyncio.to_thread(register, directory)
    await server.wait_closed()


async def serve_on_house(directory: Path) -> None:
    """By `nodeagent.edge.grpc`."""

    def answering(answer: Answer) -> Callable[[Any], Any]:
        async def handle(request: Any) -> Message:
            return answer(request)

        return handle

    async def list_and_watch(_request: Any, replies: Replies) -> None:
        await replies.send(THE_LIST)
        await asyncio.Event().wait()

    def fail(path: str, error: Exception) -> None:
        raise RuntimeError(path) from error

    methods: dict[str, Unary | Streaming] = {
        f"/{SERVICE}/{name}": Unary(kind, answering(answer)) for name, (answer, kind, _) in METHODS.items()
    }
    methods[f"/{SERVICE}/{LIST}"] = Streaming(wire.Empty, list_and_watch)
    async with open_grpc_server(directory / ENDPOINT, methods, fail):
        await asyncio.to_thread(register, directory)
        await asyncio.Event().wait()


def register(directory: Path) -> None:
    with grpc.insecure_channel(f"unix:{directory / 'kubelet.sock'}") as channel:
        call = channel.unary_unary(
            "/v1beta1.Registration/Register",
            request_serializer=wire.RegisterRequest.SerializeToString,
            response_deserializer=wire.Empty.FromString,
        )
        request = wire.RegisterRequest(version="v1beta1", endpoint=ENDPOINT, resource_name=RESOURCE, options=OPTIONS)
        call(request, timeout=10)


SERVERS: dict[str, Callable[[Path], None]] = {
    "core": serve_on_core,
    "grpclib": lambda directory: asyncio.run(serve_on_grpclib(directory)),
    "nodeagent": lambda directory: asyncio.run(serve_on_house(directory)),
}


def main() -> None:
    """Serve, register, and go on until killed."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("kubelet_dir", type=Path)
    parser.add_argument("--on", choices=SERVERS, default="core", help="what serves it (core)")
    options = parser.parse_args()
    SERVERS[options.on](options.kubelet_dir / "device-plugins")


if __name__ == "__main__":
    main()
