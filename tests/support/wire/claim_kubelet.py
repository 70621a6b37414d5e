"""The kubelet's side of a driver of claims: finds the registration socket, registers, asks over one connection."""

import socket
from collections.abc import AsyncGenerator, AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from types import ModuleType
from typing import Any

from grpclib.client import Channel, UnaryStreamMethod, UnaryUnaryMethod

from nodeagent.edge.grpc.caller import ask_apart
from nodeagent.edge.kubelet.claim_server import HEALTH_SERVICES
from nodeagent.edge.kubelet.proto import dra_v1_pb2, dra_v1beta1_pb2
from nodeagent.edge.kubelet.proto.dra_health_pb2 import NodeWatchResourcesRequest, NodeWatchResourcesResponse
from nodeagent.edge.kubelet.proto.plugin_registration_grpc import RegistrationStub
from nodeagent.edge.kubelet.proto.plugin_registration_pb2 import InfoRequest, PluginInfo, RegistrationStatus
from nodeagent.model.claims import ClaimReference
from tests.support.waiting import wait_until

WIRES: dict[str, ModuleType] = {"v1": dra_v1_pb2, "v1beta1": dra_v1beta1_pb2}


class ClaimKubelet:
    """One connection to one driver, in one version of the interface."""

    def __init__(self, info: PluginInfo, channel: Channel, version: str) -> None:
        self.info, self.channel, self.version = info, channel, version
        self.wire: Any = WIRES[version]

    async def prepare(self, *claims: ClaimReference) -> Any:
        return await self._ask("Prepare", claims)

    async def unprepare(self, *claims: ClaimReference) -> Any:
        return await self._ask("Unprepare", claims)

    async def watch_health(self, service: str = HEALTH_SERVICES[0]) -> AsyncGenerator[NodeWatchResourcesResponse, None]:
        """What is told of devices, until the stream ends."""
        path = f"/{service}/NodeWatchResources"
        call: UnaryStreamMethod[NodeWatchResourcesRequest, NodeWatchResourcesResponse] = UnaryStreamMethod(
            self.channel, path, NodeWatchResourcesRequest, NodeWatchResourcesResponse
        )
        async with call.open() as stream:
            await stream.send_message(NodeWatchResourcesRequest(), end=True)
            async for message in stream:
                yield message

    async def _ask(self, verb: str, claims: tuple[ClaimReference, ...]) -> Any:
        request_type = getattr(self.wire, f"Node{verb}ResourcesRequest")
        response_type = getattr(self.wire, f"Node{verb}ResourcesResponse")
        path = f"/k8s.io.kubelet.pkg.apis.dra.{self.version}.DRAPlugin/Node{verb}Resources"
        call: UnaryUnaryMethod[Any, Any] = UnaryUnaryMethod(self.channel, path, request_type, response_type)
        asked = [self.wire.Claim(namespace=one.namespace, name=one.name, uid=one.uid) for one in claims]
        return (await ask_apart(call(request_type(claims=asked), timeout=45))).claims


@asynccontextmanager
async def registered(registry: Path, *, version: str = "v1", error: str = "") -> AsyncIterator[ClaimKubelet]:
    """What the kubelet makes of the one socket in its registry; a killed driver's file stays until another binds."""
    await wait_until(lambda: any(map(_is_served, _list_sockets(registry))))
    (place,) = _list_sockets(registry)
    async with Channel(path=str(place)) as registration:
        stub = RegistrationStub(registration)
        info = await ask_apart(stub.GetInfo(InfoRequest(), timeout=1))
        status = RegistrationStatus(plugin_registered=not error, error=error)
        await ask_apart(stub.NotifyRegistrationStatus(status, timeout=5))
    async with Channel(path=info.endpoint) as channel:
        yield ClaimKubelet(info, channel, version)


def _is_served(place: Path) -> bool:
    with socket.socket(socket.AF_UNIX) as asking:
        return asking.connect_ex(str(place)) == 0


def _list_sockets(registry: Path) -> list[Path]:
    return [each for each in registry.iterdir() if not each.name.startswith(".")]
