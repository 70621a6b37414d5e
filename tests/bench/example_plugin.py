"""A device plugin that is not ours, small enough to read: eight devices, nothing remembered, nothing written down.

`make bench PLUGIN="python -m tests.bench.example_plugin {dir}"` measures it as any other; it shows what a plugin must
do to be measured: serve beside `{dir}/device-plugins/kubelet.sock` and register there. Since it does nothing, what a
pair takes with it is the least that a plugin on gRPC's C core can take; `tests/bench/idle` is the same on gRPC for Go.
"""

import argparse
import threading
from collections.abc import Callable, Iterator
from concurrent import futures
from pathlib import Path
from typing import Any

import grpc
from google.protobuf.message import Message

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
METHODS: dict[str, tuple[Answer, type[Message]]] = {
    "GetDevicePluginOptions": (get_options, wire.Empty),
    "GetPreferredAllocation": (prefer, wire.PreferredAllocationRequest),
    "Allocate": (allocate, wire.AllocateRequest),
}


def serve(directory: Path) -> None:
    def answering(answer: Answer) -> Callable[[Any, Any], Message]:
        return lambda request, _context: answer(request)

    def list_and_watch(_request: Any, _context: Any) -> Iterator[Message]:
        yield THE_LIST
        threading.Event().wait()

    def write(message: Message) -> bytes:
        return message.SerializeToString()

    handlers = {
        name: grpc.unary_unary_rpc_method_handler(answering(answer), kind.FromString, write)
        for name, (answer, kind) in METHODS.items()
    }
    handlers[LIST] = grpc.unary_stream_rpc_method_handler(list_and_watch, wire.Empty.FromString, write)
    server = grpc.server(futures.ThreadPoolExecutor(max_workers=4))
    server.add_generic_rpc_handlers((grpc.method_handlers_generic_handler(SERVICE, handlers),))
    server.add_insecure_port(f"unix:{directory / ENDPOINT}")
    server.start()
    register(directory)
    server.wait_for_termination()


def register(directory: Path) -> None:
    with grpc.insecure_channel(f"unix:{directory / 'kubelet.sock'}") as channel:
        call = channel.unary_unary(
            "/v1beta1.Registration/Register",
            request_serializer=wire.RegisterRequest.SerializeToString,
            response_deserializer=wire.Empty.FromString,
        )
        request = wire.RegisterRequest(version="v1beta1", endpoint=ENDPOINT, resource_name=RESOURCE, options=OPTIONS)
        call(request, timeout=10)


def main() -> None:
    """Serve, register, and go on until killed."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("kubelet_dir", type=Path)
    serve(parser.parse_args().kubelet_dir / "device-plugins")


if __name__ == "__main__":
    main()
