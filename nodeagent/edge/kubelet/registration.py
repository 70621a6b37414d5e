"""How a plugin of any type is found by the kubelet: a socket in `plugins_registry` that says who is behind it.

The kubelet watches that directory, asks who is there, connects to the endpoint that it is told, and says how it went.
It does so again by itself after its own restart, without touching our sockets.
It owns nothing of what the plugin does, and lives as long as its socket: who removes that is not registered any more.
"""

from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import NamedTuple

from nodeagent.edge.grpc.calls import CrashReporter, Methods, Unary
from nodeagent.edge.grpc.server import GrpcServer, open_grpc_server
from nodeagent.edge.kubelet.proto import plugin_registration_pb2 as wire


class PluginCard(NamedTuple):
    """What a plugin says of itself."""

    type: str
    """`DevicePlugin` or `DRAPlugin`."""
    name: str
    endpoint: Path
    """The socket that the kubelet is to call, as it sees it."""
    versions: tuple[str, ...]
    """The kubelet takes the first that it knows."""


class Registration:
    """One plugin, as the kubelet finds it."""

    def __init__(self, card: PluginCard, told: Callable[[bool, str], None]) -> None:
        """`told` hears what the kubelet says: whether the plugin is registered, and why not."""
        self._card, self._told = card, told

    def methods(self) -> Methods:
        """What the registration socket answers."""
        service = "/pluginregistration.Registration"
        return {
            f"{service}/GetInfo": Unary(wire.InfoRequest, self._get_info),
            f"{service}/NotifyRegistrationStatus": Unary(wire.RegistrationStatus, self._take_status),
        }

    @asynccontextmanager
    async def open(self, socket: Path, report_crash: CrashReporter) -> AsyncIterator[GrpcServer]:
        """Let the kubelet find the plugin for as long as the block lasts.

        Raises:
            SocketUnavailable: the socket cannot be opened.
        """
        async with open_grpc_server(socket, self.methods(), report_crash) as server:
            yield server

    async def _get_info(self, _request: wire.InfoRequest) -> wire.PluginInfo:
        card = self._card
        return wire.PluginInfo(
            type=card.type, name=card.name, endpoint=str(card.endpoint), supported_versions=card.versions
        )

    async def _take_status(self, status: wire.RegistrationStatus) -> wire.RegistrationStatusResponse:
        self._told(status.plugin_registered, status.error)
        return wire.RegistrationStatusResponse()
