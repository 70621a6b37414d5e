"""Registration the other way: by a registration socket in the kubelet's `plugins_registry`.

The kubelet watches the directory, registers each new socket, and does so again after a restart of the kubelet, without
touching our sockets.
The kubelet never asks again for a dropped list; then only a new registration socket helps.
"""

import time
from collections.abc import Callable
from pathlib import Path
from typing import Final

from anyio import TASK_STATUS_IGNORED, move_on_after, sleep
from anyio.abc import TaskStatus
from msgspec.structs import replace

from nodeagent.core.life.ticker import until_beat
from nodeagent.edge.grpc.calls import CrashReporter, Methods
from nodeagent.edge.grpc.server import GrpcServer
from nodeagent.edge.kubelet.call_times import CallTimes
from nodeagent.edge.kubelet.plugin_server import API_VERSION, PluginServer
from nodeagent.edge.kubelet.plugin_session import STABLE_SECONDS, plan_pause
from nodeagent.edge.kubelet.registration import PluginCard, Registration
from nodeagent.edge.kubelet.socket_watch import STANDING_POLL_SECONDS, wait_present
from nodeagent.model.plugin import AdvertisedDevice, AdvertisedResource
from nodeagent.model.ports import DevicePlugin

PLUGIN_TYPE: Final = "DevicePlugin"
FIRST_STREAM_SECONDS: Final = 30.0
"""The kubelet looks once a second and retries a failed socket after up to two minutes."""
RETURN_SECONDS: Final = 2.5
"""How long a restarted kubelet may take to come back without a new registration socket."""


class RegistrySession:
    """A resource, the serving socket, and the registration socket."""

    def __init__(
        self,
        plugin: DevicePlugin,
        serving_socket: Path,
        registration_socket: Path,
        *,
        report: Callable[[AdvertisedResource], None],
        report_crash: CrashReporter,
        times: CallTimes | None = None,
    ) -> None:
        self._plugin, self._report, self._report_crash = plugin, report, report_crash
        self._serving_socket, self._registration_socket = serving_socket, registration_socket
        self._server = PluginServer(plugin, report_crash, self._devices_sent, times)
        self._standing = AdvertisedResource(name=plugin.resource, socket=str(serving_socket), registered=False)
        card = PluginCard(PLUGIN_TYPE, plugin.resource, serving_socket, (API_VERSION,))
        self._registration = Registration(card, self._take_status)
        self._started: TaskStatus[None] | None = None

    async def run(self, *, task_status: TaskStatus[None] = TASK_STATUS_IGNORED) -> None:
        """Offer the resource until cancelled; started at the first registration."""
        self._started = task_status
        await wait_present(self._registration_socket.parent)
        failures = 0
        async with self._server.serve(self._serving_socket):
            while True:
                began = time.monotonic()
                async with self._registration.open(self._registration_socket, self._report_crash) as registration:
                    await self._wait_end(registration)
                # The kubelet takes the registration back when the socket goes; our side of the stream must be over too.
                await self._server.end_streams()
                failures = 0 if time.monotonic() - began >= STABLE_SECONDS else failures + 1
                await sleep(plan_pause(failures))

    def methods(self) -> Methods:
        """The methods of the registration socket."""
        return self._registration.methods()

    def _take_status(self, is_registered: bool, error: str) -> None:  # noqa: FBT001  # as the kubelet says it
        self._say(registered=is_registered, last_error=error)
        self._server.wake()

    async def _wait_end(self, registration: GrpcServer) -> None:
        """Return when the kubelet has dropped the list and does not come back, or the socket file is gone."""
        patience = FIRST_STREAM_SECONDS
        while await self._stream_begins(patience):
            while self._server.streaming:
                self._report_started()
                with move_on_after(until_beat(STANDING_POLL_SECONDS)):
                    await self._server.wait_stream_change()
                if not registration.owns_file():
                    return
            self._say(registered=False, last_error="the kubelet does not follow the list of devices")
            patience = RETURN_SECONDS

    def _report_started(self) -> None:
        if self._standing.registered and self._started is not None:
            self._started.started()
            self._started = None

    async def _stream_begins(self, patience_seconds: float) -> bool:
        with move_on_after(patience_seconds):
            while not self._server.streaming:
                await self._server.wait_stream_change()
        return self._server.streaming

    def _devices_sent(self, devices: tuple[AdvertisedDevice, ...]) -> None:
        self._standing = replace(self._standing, devices=devices)
        self._report(self._standing)

    def _say(self, *, registered: bool, last_error: str) -> None:
        self._standing = replace(self._standing, registered=registered, last_error=last_error)
        self._report(self._standing)
