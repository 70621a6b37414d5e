"""Registration of a plugin of any type: a socket in the kubelet's `plugins_registry` that introduces the plugin.

The kubelet watches the directory, asks at each socket, connects to the named endpoint, and reports the result, and
does so again after a restart of the kubelet, without touching our sockets.
Owns nothing of the plugin, and lives as long as the socket: removing the socket ends the registration.
"""

from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import NamedTuple

from nodeagent.edge.grpc.calls import CrashReporter, Methods, Unary
from nodeagent.edge.grpc.server import GrpcServer, open_grpc_server
from nodeagent.edge.kubelet.proto import plugin_registration_pb2 as wire


class PluginCard(NamedTuple):
    """A plugin's introduction to the kubelet."""

    type: str
    """`DevicePlugin` or `DRAPlugin`."""
    name: str
    endpoint: Path
    """The socket for the kubelet's calls, by the kubelet's path."""
    versions: tuple[str, ...]
    """The kubelet takes the first known version."""


class Registration:
    """The registration of a plugin."""

    def __init__(self, card: PluginCard, told: Callable[[bool, str], None]) -> None:
        """`told` is called with the kubelet's report: whether the plugin is registered, and the error if not."""
        self._card, self._told = card, told

    def methods(self) -> Methods:
        """The methods of the registration socket."""
        service = "/pluginregistration.Registration"
        return {
            f"{service}/GetInfo": Unary(wire.InfoRequest, self._get_info),
            f"{service}/NotifyRegistrationStatus": Unary(wire.RegistrationStatus, self._take_status),
        }

    @asynccontextmanager
    async def open(self, socket: Path, report_crash: CrashReporter) -> AsyncIterator[GrpcServer]:
        """Let the kubelet find the plugin for as long as the block lasts."""
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
