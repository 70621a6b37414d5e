"""The stand-in kubelet with the calls that count made by gRPC's C core, in a process of its own.

A client in Python would cost as much as what is measured; the real kubelet's does not.
Run as `python -m tests.bench.core_kubelet --dir D --rounds N --size K [--resource R]`; prints one JSON line.
"""

import sys
from collections.abc import Sequence
from pathlib import Path

import grpc
from google.protobuf.message import Message

from nodeagent.edge.kubelet.proto import device_plugin_pb2 as wire
from nodeagent.edge.simulated.kubelet import __main__ as process
from nodeagent.edge.simulated.kubelet.device_manager import Choice
from nodeagent.edge.simulated.kubelet.plugin_client import PluginClient

SERVICE = "/v1beta1.DevicePlugin"


class CorePluginClient(PluginClient):
    """Blocks this process while it asks: nothing else goes on in here while a pod is admitted."""

    def __init__(self, resource: str, socket: Path) -> None:
        super().__init__(resource, socket)
        self._core = grpc.insecure_channel(f"unix:{socket}")
        self._prefer = self._core.unary_unary(
            f"{SERVICE}/GetPreferredAllocation",
            request_serializer=wire.PreferredAllocationRequest.SerializeToString,
            response_deserializer=wire.PreferredAllocationResponse.FromString,
        )
        self._allocate = self._core.unary_unary(
            f"{SERVICE}/Allocate",
            request_serializer=wire.AllocateRequest.SerializeToString,
            response_deserializer=wire.AllocateResponse.FromString,
        )

    def close(self) -> None:
        self._core.close()
        super().close()

    async def prefer(self, choice: Choice) -> tuple[str, ...]:
        request = wire.ContainerPreferredAllocationRequest(
            available_deviceIDs=[*choice.free, *choice.taken],
            must_include_deviceIDs=choice.taken,
            allocation_size=choice.size,
        )
        answer = self._prefer(wire.PreferredAllocationRequest(container_requests=[request]))
        return tuple(answer.container_responses[0].deviceIDs)

    async def allocate(self, devices: Sequence[str]) -> Message:
        request = wire.ContainerAllocateRequest(devices_ids=devices)
        answer = self._allocate(wire.AllocateRequest(container_requests=[request]))
        response: Message = answer.container_responses[0]
        return response


if __name__ == "__main__":
    sys.exit(process.main(dial=CorePluginClient))
