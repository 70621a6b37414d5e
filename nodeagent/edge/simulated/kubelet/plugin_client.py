"""The stand-in kubelet's line to one device plugin: it dials the plugin's socket and asks."""

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
from nodeagent.edge.simulated.kubelet.device_manager import Choice, Device

DIAL_SECONDS: Final = 10.0
PRE_START_SECONDS: Final = 30.0

LINE_ERRORS: Final = (GRPCError, ProtocolError, StreamTerminatedError, OSError, AttributeError)
"""Everything that the other end, or its absence, can do to a call.

The last is how grpclib stumbles over an end that has left between the connection and the request.
"""


class PluginFailed(Exception):
    """A call to the plugin came to nothing; the text is what the kubelet would write into the pod's event."""


class PluginClient:
    """One registered plugin."""

    def __init__(self, resource: str, socket: Path) -> None:
        self.resource, self.socket = resource, socket
        self.options = DevicePluginOptions()
        self._channel = EndingChannel(path=str(socket))
        self._stub = DevicePluginStub(self._channel)

    def close(self) -> None:
        """Hang up; the stream of lists ends with it."""
        self._channel.close()

    async def read_options(self) -> None:
        """Ask what the plugin wants to be asked; this is also the first sign of life.

        Raises:
            PluginFailed: nobody answers.
        """
        try:
            self.options = await ask_apart(self._stub.GetDevicePluginOptions(Empty(), timeout=DIAL_SECONDS))
        except (*LINE_ERRORS, TimeoutError) as error:
            raise PluginFailed(f"failed to dial device plugin {self.socket}: {describe_call_error(error)}") from error

    async def lists(self) -> AsyncIterator[tuple[Device, ...]]:
        """Each list the plugin sends, until the stream ends.

        Raises:
            PluginFailed: it did not end well.
        """
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
        """Ask for the plugin's preference, if it has one.

        Raises:
            PluginFailed: it answers with an error.
        """
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
        """Ask what one container needs in order to use these devices.

        Raises:
            PluginFailed: it answers with an error, or with nothing.
        """
        request = AllocateRequest(container_requests=[ContainerAllocateRequest(devices_ids=devices)])
        try:
            answer = await ask_apart(self._stub.Allocate(request))
        except LINE_ERRORS as error:
            raise PluginFailed(describe_call_error(error)) from error
        if not answer.container_responses:
            raise PluginFailed(f"no containers return in allocation response {answer}")
        return answer.container_responses[0]

    async def pre_start(self, devices: Iterable[str]) -> None:
        """Tell the plugin that a container with these devices is about to start, if it wants to know.

        Raises:
            PluginFailed: it answers with an error, or not in time.
        """
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
