"""The plugin behind a socket, and what is said to it: by the library's client, or byte by byte."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

from grpclib.client import Channel

from nodeagent.edge.grpc.server import GrpcServer, open_grpc_server
from nodeagent.edge.kubelet.plugin_server import PluginServer
from nodeagent.edge.kubelet.proto import device_plugin_pb2 as wire
from nodeagent.edge.kubelet.proto.device_plugin_grpc import DevicePluginStub
from tests.fakes.device_plugin import FakeDevicePlugin
from tests.support.wire.kubelets import no_crash

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
