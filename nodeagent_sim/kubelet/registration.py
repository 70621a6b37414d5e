"""The stand-in kubelet's plugin registry: takes registrations, follows the plugins' lists, notices their end.

Both registries have the defect of the real kubelets in their place. Up to and including 1.36 a second registration of
a resource replaces the first without hanging up on the first plugin, and when the first stream ends, the second plugin
is disconnected instead. From 1.37 a resource has a plugin for each socket path; the registration of a path whose stream
is open is refused, and makes the registry forget to look at the end of that stream: the path is refused for ever.
"""

import re
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any, Final

from anyio.abc import TaskGroup
from grpclib.const import Status

from nodeagent.edge.grpc.calls import CallRefused, Methods, Unary
from nodeagent.edge.kubelet.proto.device_plugin_pb2 import Empty, RegisterRequest
from nodeagent_sim.kubelet.device_manager import DeviceManager
from nodeagent_sim.kubelet.plugin_client import PluginClient, PluginFailed

SUPPORTED_VERSION: Final = "v1beta1"
FIRST_WITH_PATHS: Final = 37
"""The first minor version whose kubelet tells the plugins of a resource apart by their sockets."""
_RESOURCE_NAME: Final = re.compile(r"[a-z0-9]([-.a-z0-9]*[a-z0-9])?/[A-Za-z0-9]([-._A-Za-z0-9]{0,61}[A-Za-z0-9])?")


class PluginRegistry:
    """All plugins of one life of a kubelet up to 1.36: one for each resource."""

    def __init__(
        self,
        manager: DeviceManager,
        directory: Path,
        tasks: TaskGroup,
        *,
        changed: Callable[[], None],
        wanted: Callable[[], bool],
        dial: Callable[[str, Path], PluginClient],
    ) -> None:
        self._manager, self._directory, self._tasks = manager, directory, tasks
        self._changed, self._wanted, self._dial = changed, wanted, dial
        self._clients: dict[str, PluginClient] = {}
        self._all: set[PluginClient] = set()
        self.registrations: list[str] = []
        """The resource of each registration, in order, for tests and people."""

    def methods(self) -> Methods:
        """The methods for a server."""
        return {"/v1beta1.Registration/Register": Unary(RegisterRequest, self._register)}

    def find(self, resource: str) -> PluginClient:
        """The plugin that serves the resource.

        Raises:
            PluginFailed: No plugin serves the resource now.
        """
        client = self._clients.get(resource)
        if client is None:
            raise PluginFailed(f"endpoint {resource} has been stopped")
        return client

    def close(self) -> None:
        """Hang up on all plugins."""
        for client in tuple(self._all):
            client.close()

    async def _register(self, request: RegisterRequest) -> Empty:
        if request.version != SUPPORTED_VERSION:
            raise CallRefused(
                Status.UNKNOWN,
                f'requested API version "{request.version}" is not supported by kubelet.'
                f' Supported version is ["{SUPPORTED_VERSION}"]',
            )
        if not is_extended_resource(request.resource_name):
            raise CallRefused(Status.UNKNOWN, f'the ResourceName "{request.resource_name}" is invalid')
        if not self._wanted():
            return Empty()
        try:
            await self.connect(request.resource_name, self._directory / request.endpoint.lstrip("/"))
        except PluginFailed as error:
            raise CallRefused(Status.UNKNOWN, str(error)) from error
        return Empty()

    async def connect(self, resource: str, socket: Path) -> None:
        """Dial a plugin, ask for its options, and follow its lists from now on.

        Raises:
            PluginFailed: The plugin does not answer.
        """
        client = self._dial(resource, socket)
        self._all.add(client)
        try:
            await client.read_options()
            self._take(client)
            self._tasks.start_soon(self._follow, client, name=f"lists of {resource}")
        except BaseException:
            self._hang_up(client)
            raise
        self._clients[resource] = client
        self._manager.register(resource)
        self.registrations.append(resource)

    def _take(self, client: PluginClient) -> None:
        """Judge a plugin that has answered.

        Raises:
            PluginFailed: The plugin is refused.
        """

    def _note_end(self, client: PluginClient) -> None:
        # The defect: the lookup is by resource, and may find another plugin by now.
        self.disconnect(client.resource)

    def disconnect(self, resource: str, _socket: Path | None = None) -> None:
        """Hang up on the present plugin of a resource."""
        current = self._clients.pop(resource, None)
        if current is not None:
            self._hang_up(current)
            self._manager.disconnect(resource)
            self._changed()

    async def _follow(self, client: PluginClient) -> None:
        try:
            # The kubelet does not distinguish the ends of a stream.
            with suppress(PluginFailed):
                async for devices in client.lists():
                    self._manager.receive_list(client.resource, devices)
                    self._changed()
            self._note_end(client)
        finally:
            self._hang_up(client)

    def _hang_up(self, client: PluginClient) -> None:
        self._all.discard(client)
        client.close()


class PathRegistry(PluginRegistry):
    """All plugins of one life of a kubelet from 1.37: one for each socket path, and the newest is asked."""

    def __init__(self, manager: DeviceManager, directory: Path, tasks: TaskGroup, **calls: Any) -> None:
        super().__init__(manager, directory, tasks, **calls)
        self._connected: dict[tuple[str, Path], PluginClient] = {}
        self._watched: set[PluginClient] = set()
        """The plugins whose end is noticed."""

    def _take(self, client: PluginClient) -> None:
        key = client.resource, client.socket
        if key in self._connected:
            # The defect: the registration in force goes out of the list of clients together with the refused one.
            self._watched.discard(self._connected[key])
            raise PluginFailed(f"device plugin already connected: {client.socket}")
        self._connected[key] = client
        self._watched.add(client)

    def _note_end(self, client: PluginClient) -> None:
        if client in self._watched:
            self.disconnect(client.resource, client.socket)

    def disconnect(self, resource: str, socket: Path | None = None) -> None:
        """Hang up on the plugin at a socket, or on the plugin that is asked; another one is asked from now on."""
        current = self._clients.get(resource) if socket is None else self._connected.get((resource, socket))
        if current is None:
            return
        self._watched.discard(current)
        del self._connected[resource, current.socket]
        self._hang_up(current)
        left = [each for (name, _), each in self._connected.items() if name == resource]
        if left:
            self._clients[resource] = left[-1]
            return
        del self._clients[resource]
        self._manager.disconnect(resource)
        self._changed()


def is_extended_resource(name: str) -> bool:
    """Whether the kubelet accepts a name as a device plugin's resource."""
    domain = name.partition("/")[0]
    foreign = domain != "kubernetes.io" and not domain.endswith(".kubernetes.io") and not domain.startswith("requests.")
    return bool(_RESOURCE_NAME.fullmatch(name)) and foreign
