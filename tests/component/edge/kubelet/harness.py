"""The plugin behind a socket, and what is said to it: by the library's client, or byte by byte."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

from grpclib.client import Channel

from nodeagent.edge.kubelet.plugin_server import PluginServer
from nodeagent.edge.kubelet.proto import device_plugin_pb2 as wire
from nodeagent.edge.kubelet.proto.device_plugin_grpc import DevicePluginStub
from nodeagent.edge.kubelet.wire import frames
from nodeagent.edge.kubelet.wire.server import GrpcServer, open_grpc_server
from tests.fakes.device_plugin import FakeDevicePlugin
from tests.support.kubelets import no_crash

Crashes = list[tuple[str, Exception]]


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


def raw_call(path: str, body: bytes) -> bytes:
    fields = {":method": "POST", ":path": path, "content-type": "application/grpc"}
    block = b"".join(frames.encode_header(name.encode(), value.encode()) for name, value in fields.items())
    return frames.encode_frame(frames.HEADERS, frames.END_HEADERS, 1, block) + frames.encode_frame(
        frames.DATA, frames.END_STREAM, 1, body
    )
