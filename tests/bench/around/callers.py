"""Who asks in the stand-in kubelet's name where the time of a call counts.

The stand-in's own client is Python's grpclib, which costs as much as what is measured; the real kubelet's does not.
"""

import asyncio
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Final, Protocol

import anyio.to_thread
import grpc
from google.protobuf.message import Message

from nodeagent.edge.kubelet.proto import device_plugin_pb2 as wire
from nodeagent_sim.kubelet.device_manager import Choice
from nodeagent_sim.kubelet.plugin_client import PluginClient
from tests.support.wire.go_client import GoClient

SERVICE: Final = "/v1beta1.DevicePlugin"


class Caller(Protocol):
    """Makes one unary call after the other, blocking."""

    def call(self, method: str, message: bytes) -> bytes: ...

    def flush(self) -> None:
        """No further call follows at once: send whatever may have waited for one."""
        ...

    def close(self) -> None: ...


class CoreCaller:
    """gRPC's C core under Python: a client that others wrote."""

    def __init__(self, socket: Path) -> None:
        self._channel = grpc.insecure_channel(f"unix:{socket}")
        self._methods: dict[str, Callable[[bytes], bytes]] = {}

    def call(self, method: str, message: bytes) -> bytes:
        known = self._methods.get(method)
        if known is None:
            known = self._methods[method] = self._channel.unary_unary(method)
        return known(message)

    def flush(self) -> None:
        """The core has a thread of its own that sends."""

    def close(self) -> None:
        self._channel.close()


CALLERS: Final[Mapping[str, Callable[[Path], Caller]]] = {"go": GoClient, "core": CoreCaller}


class BlockingPluginClient(PluginClient):
    """Blocks this process while it asks: nothing else goes on in here while a pod is admitted."""

    def __init__(self, resource: str, socket: Path, caller: str) -> None:
        super().__init__(resource, socket)
        self._caller = CALLERS[caller](socket)
        self.start_seconds = 0.0
        """How long the plugin took over all starts."""

    def close(self) -> None:
        self._caller.close()
        super().close()

    async def prefer(self, choice: Choice) -> tuple[str, ...]:
        request = wire.ContainerPreferredAllocationRequest(
            available_deviceIDs=[*choice.free, *choice.taken],
            must_include_deviceIDs=choice.taken,
            allocation_size=choice.size,
        )
        message = wire.PreferredAllocationRequest(container_requests=[request]).SerializeToString()
        answer = wire.PreferredAllocationResponse.FromString(self._call("GetPreferredAllocation", message))
        return tuple(answer.container_responses[0].deviceIDs)

    async def allocate(self, devices: Sequence[str]) -> Message:
        request = wire.ContainerAllocateRequest(devices_ids=devices)
        message = wire.AllocateRequest(container_requests=[request]).SerializeToString()
        answer = wire.AllocateResponse.FromString(self._call("Allocate", message))
        response: Message = answer.container_responses[0]
        return response

    async def pre_start(self, devices: Iterable[str]) -> None:
        """In a thread: the plugin may ask for the list of pods meanwhile. The way into it is none of its time."""
        if self.options.pre_start_required:
            message = wire.PreStartContainerRequest(devices_ids=devices).SerializeToString()
            self.start_seconds += await anyio.to_thread.run_sync(self._start, message)

    def ask_nothing(self) -> float:
        """Seconds of a call that is answered out of hand: this client, the way there and back, and gRPC."""
        began = time.perf_counter()
        self._caller.call(f"{SERVICE}/GetDevicePluginOptions", b"")
        ended = time.perf_counter()
        self._caller.flush()
        return ended - began

    def _start(self, message: bytes) -> float:
        began = time.perf_counter()
        self._caller.call(f"{SERVICE}/PreStartContainer", message)
        ended = time.perf_counter()
        self._caller.flush()
        return ended - began

    def _call(self, method: str, message: bytes) -> bytes:
        """The answer; what it leaves to say goes with an Allocate of this same turn, or in the next turn."""
        answer = self._caller.call(f"{SERVICE}/{method}", message)
        asyncio.get_running_loop().call_soon(self._caller.flush)
        return answer
