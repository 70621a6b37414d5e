"""The stand-in kubelet's plugin watcher: registers the plugins behind sockets in `plugins_registry`.

The stand-in polls ten times a second where the real kubelet uses inotify and a poll each second; the steps, the limits,
the growing pauses after failures and the deregistration by name and socket are the real kubelet's.
"""

import time
from pathlib import Path
from typing import Final

from anyio import sleep
from grpclib.client import Channel

from nodeagent.edge.grpc.caller import ask_apart
from nodeagent.edge.grpc.unix_socket import FileIdentity, identify_file
from nodeagent.edge.kubelet.proto.plugin_registration_grpc import RegistrationStub
from nodeagent.edge.kubelet.proto.plugin_registration_pb2 import InfoRequest, PluginInfo, RegistrationStatus
from nodeagent_sim.kubelet.plugin_client import LINE_ERRORS, PluginFailed, describe_call_error
from nodeagent_sim.kubelet.registration import SUPPORTED_VERSION, PluginRegistry, is_extended_resource

POLL_EVERY_SECONDS: Final = 0.1
INFO_SECONDS: Final = 1.0
NOTIFY_SECONDS: Final = 5.0
FIRST_PAUSE_SECONDS: Final = 0.5
LONGEST_PAUSE_SECONDS: Final = 122.0
REFUSED: Final = "RegisterPlugin error --"


class RegistryWatch:
    """Keeps the registered plugins equal to the sockets in the directory."""

    def __init__(self, directory: Path, registry: PluginRegistry) -> None:
        self._directory, self._registry = directory, registry
        self._registered: dict[Path, tuple[FileIdentity, str, Path]] = {}
        self._failed: dict[Path, tuple[float, float]] = {}
        """Time of the next try, and the pause before the try."""

    async def run(self) -> None:
        """Watch until cancelled."""
        while True:
            sockets = self._find_sockets()
            for path in self._registered.keys() - sockets.keys():
                self._deregister(path)
            for path, identity in sockets.items():
                await self._reconcile(path, identity)
            await sleep(POLL_EVERY_SECONDS)

    def _find_sockets(self) -> dict[Path, FileIdentity]:
        found = {
            path: identify_file(path)
            for path in self._directory.iterdir()
            if not path.name.startswith(".") and path.is_socket()
        }
        return {path: identity for path, identity in found.items() if identity is not None}

    async def _reconcile(self, path: Path, identity: FileIdentity) -> None:
        known = self._registered[path][0] if path in self._registered else None
        if known == identity or time.monotonic() < self._failed.get(path, (0.0, 0.0))[0]:
            return
        if known is not None:
            self._deregister(path)
        try:
            self._registered[path] = identity, *await self._register(path)
            self._failed.pop(path, None)
        except PluginFailed:
            pause = min(LONGEST_PAUSE_SECONDS, 2 * self._failed.get(path, (0.0, FIRST_PAUSE_SECONDS / 2))[1])
            self._failed[path] = time.monotonic() + pause, pause

    async def _register(self, path: Path) -> tuple[str, Path]:
        """Register the plugin behind a socket; the plugin's resource and the socket for calls."""
        channel = Channel(path=str(path))
        stub = RegistrationStub(channel)
        try:
            info = await ask_apart(stub.GetInfo(InfoRequest(), timeout=INFO_SECONDS))
            endpoint = Path(info.endpoint) if info.endpoint else path
            problem = await self._connect(info, path, endpoint)
            status = RegistrationStatus(plugin_registered=not problem, error=problem)
            await ask_apart(stub.NotifyRegistrationStatus(status, timeout=NOTIFY_SECONDS))
        except (*LINE_ERRORS, TimeoutError) as error:
            raise PluginFailed(describe_call_error(error)) from error
        finally:
            channel.close()
        if problem:
            raise PluginFailed(problem)
        return info.name, endpoint

    async def _connect(self, info: PluginInfo, path: Path, endpoint: Path) -> str:
        """Register a plugin by the plugin's own description; the error, empty after success."""
        if info.type != "DevicePlugin":
            return f"{REFUSED} no handler registered for plugin type: {info.type} at socket {path}"
        if SUPPORTED_VERSION not in info.supported_versions:
            versions = " ".join(info.supported_versions)
            problem = f"manager version, {SUPPORTED_VERSION}, is not among plugin supported versions [{versions}]"
            return f"{REFUSED} plugin validation failed with err: {problem}"
        if not is_extended_resource(info.name):
            problem = f'invalid name of device plugin socket: the ResourceName "{info.name}" is invalid'
            return f"{REFUSED} plugin validation failed with err: {problem}"
        try:
            await self._registry.connect(info.name, endpoint)
        except PluginFailed as error:
            return str(error)
        return ""

    def _deregister(self, path: Path) -> None:
        _, resource, endpoint = self._registered.pop(path)
        self._registry.disconnect(resource, endpoint)
