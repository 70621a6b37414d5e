"""The stand-in kubelet's connection to one device plugin: dials the plugin's socket, and calls the plugin."""

from collections.abc import AsyncIterator, Iterable, Sequence
from pathlib import Path
from typing import Final

from google.protobuf.message import Message
from grpclib.exceptions import GRPCError, ProtocolError, StreamTerminatedError

from nodeagent.edge.grpc.caller import EndingChannel, ask_apart
from nodeagent.edge.kubelet.proto.device_plugin_grpc import DevicePluginStub
from nodeagent.edge.kubelet.proto.device_plugin_pb2 import (
    AllocateRequest,
    ContainerAllocateRequest,
    ContainerPreferredAllocationRequest,
    DevicePluginOptions,
    Empty,
    PreferredAllocationRequest,
    PreStartContainerRequest,
)
from nodeagent_sim.kubelet.device_manager import Choice, Device

DIAL_SECONDS: Final = 10.0
PRE_START_SECONDS: Final = 30.0

LINE_ERRORS: Final = (GRPCError, ProtocolError, StreamTerminatedError, OSError, AttributeError)
"""Every failure of a call by the other end, or by its absence.

The last error is grpclib's for a peer that has left between the connection and the request.
"""


class PluginFailed(Exception):
    """A call to the plugin failed; the text is the kubelet's text for the pod's event."""


class PluginClient:
    """One registered plugin; a call that fails raises `PluginFailed`."""

    def __init__(self, resource: str, socket: Path) -> None:
        self.resource, self.socket = resource, socket
        self.options = DevicePluginOptions()
        self._channel = EndingChannel(path=str(socket))
        self._stub = DevicePluginStub(self._channel)

    def close(self) -> None:
        """Hang up; the stream of lists ends, too."""
        self._channel.close()

    async def read_options(self) -> None:
        """Ask for the plugin's options; the answer is also the first sign of life."""
        try:
            self.options = await ask_apart(self._stub.GetDevicePluginOptions(Empty(), timeout=DIAL_SECONDS))
        except (*LINE_ERRORS, TimeoutError) as error:
            raise PluginFailed(f"failed to dial device plugin {self.socket}: {describe_call_error(error)}") from error

    async def lists(self) -> AsyncIterator[tuple[Device, ...]]:
        """Each list that the plugin sends, until the stream ends."""
        try:
            async with self._stub.ListAndWatch.open() as stream:
                await stream.send_message(Empty(), end=True)
                async for message in stream:
                    yield tuple(
                        Device(device.ID, device.health == "Healthy", tuple(node.ID for node in device.topology.nodes))
                        for device in message.devices
                    )
        except LINE_ERRORS as error:
            raise PluginFailed(describe_call_error(error)) from error

    async def prefer(self, choice: Choice) -> tuple[str, ...]:
        """Ask for the plugin's preference, if the plugin offers preferences."""
        if not self.options.get_preferred_allocation_available:
            return ()
        request = ContainerPreferredAllocationRequest(
            available_deviceIDs=[*choice.free, *choice.taken],
            must_include_deviceIDs=choice.taken,
            allocation_size=choice.size,
        )
        try:
            question = PreferredAllocationRequest(container_requests=[request])
            answer = await ask_apart(self._stub.GetPreferredAllocation(question))
        except LINE_ERRORS as error:
            raise PluginFailed(describe_call_error(error)) from error
        return tuple(answer.container_responses[0].deviceIDs) if answer.container_responses else ()

    async def allocate(self, devices: Sequence[str]) -> Message:
        """Ask for a container's needs in order to use the devices."""
        request = AllocateRequest(container_requests=[ContainerAllocateRequest(devices_ids=devices)])
        try:
            answer = await ask_apart(self._stub.Allocate(request))
        except LINE_ERRORS as error:
            raise PluginFailed(describe_call_error(error)) from error
        if not answer.container_responses:
            raise PluginFailed(f"no containers return in allocation response {answer}")
        return answer.container_responses[0]

    async def pre_start(self, devices: Iterable[str]) -> None:
        """Announce the start of a container with the devices, if the plugin requires PreStart."""
        if not self.options.pre_start_required:
            return
        request = PreStartContainerRequest(devices_ids=devices)
        try:
            await ask_apart(self._stub.PreStartContainer(request, timeout=PRE_START_SECONDS))
        except (*LINE_ERRORS, TimeoutError) as error:
            raise PluginFailed(describe_call_error(error)) from error


def describe_call_error(error: BaseException) -> str:
    """A failed call in the words of the kubelet's gRPC library."""
    if isinstance(error, GRPCError):
        code, text = error.status.name.title().replace("_", ""), error.message or ""
    elif isinstance(error, TimeoutError):
        code, text = "DeadlineExceeded", "context deadline exceeded"
    else:
        code, text = "Unavailable", str(error)
    return f"rpc error: code = {code} desc = {text}"
