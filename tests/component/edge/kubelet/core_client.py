"""A client of gRPC's C core in a process of its own: the stack that the kubelet's relatives speak.

Prints what it got as one JSON line; run as `python -m tests.component.edge.kubelet.core_client SOCKET`;
with a number behind it, it says what a request of so many bytes is answered with.
"""

import json
import sys
from typing import Any

import grpc

from nodeagent.edge.kubelet.proto import device_plugin_pb2 as wire

SERVICE = "/v1beta1.DevicePlugin"


def call(channel: grpc.Channel, method: str, request: Any, reply: Any) -> Any:
    ask = channel.unary_unary(
        f"{SERVICE}/{method}",
        request_serializer=type(request).SerializeToString,
        response_deserializer=reply.FromString,
    )
    return ask(request, timeout=20, wait_for_ready=True)


def main(socket: str) -> dict[str, Any]:
    found: dict[str, Any] = {}
    with grpc.insecure_channel(f"unix:{socket}") as channel:
        lists = channel.unary_stream(
            f"{SERVICE}/ListAndWatch",
            request_serializer=wire.Empty.SerializeToString,
            response_deserializer=wire.ListAndWatchResponse.FromString,
        )(wire.Empty(), wait_for_ready=True)
        found["devices"] = [device.ID for device in next(lists).devices]
        asked = wire.ContainerPreferredAllocationRequest(available_deviceIDs=found["devices"], allocation_size=4)
        preferred = wire.PreferredAllocationRequest(container_requests=[asked])
        answer = call(channel, "GetPreferredAllocation", preferred, wire.PreferredAllocationResponse)
        found["preferred"] = list(answer.container_responses[0].deviceIDs)
        allocated = [allocate(channel, found["preferred"]) for _ in range(200)]
        found["allocated"] = sorted(set(allocated))
        try:
            allocate(channel, ["GPU-unknown"])
        except grpc.RpcError as error:
            found["refusal"] = [error.code().name, error.details()]
        lists.cancel()
    return found


def refuse(socket: str, size_bytes: int) -> list[str]:
    """What is said of an Allocate of this size, and maybe a few bytes more."""
    with grpc.insecure_channel(f"unix:{socket}") as channel:
        try:
            allocate(channel, ["x" * size_bytes])
        except grpc.RpcError as error:
            return [error.code().name, error.details()]
    return []


def allocate(channel: grpc.Channel, devices: list[str]) -> str:
    request = wire.AllocateRequest(container_requests=[wire.ContainerAllocateRequest(devices_ids=devices)])
    answer = call(channel, "Allocate", request, wire.AllocateResponse)
    environment: str = answer.container_responses[0].envs["NVIDIA_VISIBLE_DEVICES"]
    return environment


if __name__ == "__main__":
    found = refuse(sys.argv[1], int(sys.argv[2])) if sys.argv[2:] else main(sys.argv[1])
    sys.stdout.write(json.dumps(found))
