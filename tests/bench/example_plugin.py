"""A device plugin that is not ours, small enough to read: eight devices, served by gRPC's C core, nothing remembered.

`make bench PLUGIN="python -m tests.bench.example_plugin {dir}"` measures it as any other; it shows what a plugin must
do to be measured: serve beside `{dir}/device-plugins/kubelet.sock` and register there.
"""

import argparse
import threading
from collections.abc import Iterator
from concurrent import futures
from pathlib import Path
from typing import Any

import grpc
from google.protobuf.message import Message

from nodeagent.edge.kubelet.proto import device_plugin_pb2 as wire

ENDPOINT, RESOURCE, DEVICES = "example.sock", "example.com/thing", 8


def write(message: Message) -> bytes:
    """In bytes."""
    return message.SerializeToString()


def get_options(_request: Message, _context: Any) -> Message:
    """It has preferences."""
    return wire.DevicePluginOptions(get_preferred_allocation_available=True)


def list_and_watch(_request: Message, _context: Any) -> Iterator[Message]:
    """One list, which never changes."""
    yield wire.ListAndWatchResponse(
        devices=[wire.Device(ID=f"thing-{number}", health="Healthy") for number in range(DEVICES)]
    )
    threading.Event().wait()


def prefer(request: Any, _context: Any) -> Message:
    """The first ones."""
    answers = [
        wire.ContainerPreferredAllocationResponse(deviceIDs=sorted(one.available_deviceIDs)[: one.allocation_size])
        for one in request.container_requests
    ]
    return wire.PreferredAllocationResponse(container_responses=answers)


def allocate(request: Any, _context: Any) -> Message:
    """A variable that names them."""
    answers = [
        wire.ContainerAllocateResponse(envs={"THINGS": ",".join(one.devices_ids)}) for one in request.container_requests
    ]
    return wire.AllocateResponse(container_responses=answers)


METHODS = {
    "GetDevicePluginOptions": grpc.unary_unary_rpc_method_handler(get_options, wire.Empty.FromString, write),
    "ListAndWatch": grpc.unary_stream_rpc_method_handler(list_and_watch, wire.Empty.FromString, write),
    "GetPreferredAllocation": grpc.unary_unary_rpc_method_handler(
        prefer, wire.PreferredAllocationRequest.FromString, write
    ),
    "Allocate": grpc.unary_unary_rpc_method_handler(allocate, wire.AllocateRequest.FromString, write),
}


def main() -> None:
    """Serve, register, and go on until killed."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("kubelet_dir", type=Path)
    directory = parser.parse_args().kubelet_dir / "device-plugins"
    server = grpc.server(futures.ThreadPoolExecutor(max_workers=4))
    server.add_generic_rpc_handlers((grpc.method_handlers_generic_handler("v1beta1.DevicePlugin", METHODS),))
    server.add_insecure_port(f"unix:{directory / ENDPOINT}")
    server.start()
    with grpc.insecure_channel(f"unix:{directory / 'kubelet.sock'}") as channel:
        register = channel.unary_unary(
            "/v1beta1.Registration/Register",
            request_serializer=write,
            response_deserializer=wire.Empty.FromString,
        )
        options = wire.DevicePluginOptions(get_preferred_allocation_available=True)
        register(
            wire.RegisterRequest(version="v1beta1", endpoint=ENDPOINT, resource_name=RESOURCE, options=options),
            timeout=10,
        )
    server.wait_for_termination()


if __name__ == "__main__":
    main()
