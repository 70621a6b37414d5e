"""Keeps a resource offered to the kubelet, through everything that kubelets do.

Owns the order: serve, then register, then watch for the end of the registration: another kubelet process, a stream
dropped by the kubelet for ever, a removed socket file, a list lost by the kubelet in spite of an open stream.
Never registers while an older stream is alive (kubelets up to 1.36 would disconnect the new one when the old one
ends, kubelets from 1.37 would refuse the socket's path from then on), and never "just in case". Another plugin of the
same resource is reported and not fought: each registration against the other plugin would take the node's devices away
for a moment. Kubelets from 1.37 keep the other plugin's list after its end: the session then sends the list again.
"""

import time
from collections.abc import Callable
from pathlib import Path
from typing import Final

from anyio import TASK_STATUS_IGNORED, move_on_after
from anyio.abc import TaskStatus
from msgspec.structs import replace

from nodeagent.core.life.ticker import until_beat
from nodeagent.edge.grpc.calls import CrashReporter
from nodeagent.edge.grpc.errors import SocketUnavailable
from nodeagent.edge.grpc.unix_socket import FileIdentity, identify_file
from nodeagent.edge.kubelet.call_times import CallTimes
from nodeagent.edge.kubelet.errors import KubeletError, RegistrationRefused
from nodeagent.edge.kubelet.list_check import ListCheck, ListVerdict, ReadAllocatable
from nodeagent.edge.kubelet.plugin_server import PluginServer
from nodeagent.edge.kubelet.registrar import register_plugin
from nodeagent.edge.kubelet.socket_watch import STANDING_POLL_SECONDS, wait_present
from nodeagent.model.plugin import AdvertisedDevice, AdvertisedResource
from nodeagent.model.ports import DevicePlugin

KUBELET_SOCKET_NAME: Final = "kubelet.sock"
FIRST_STREAM_SECONDS: Final = 10.0
"""A kubelet asks for the list at once; a kubelet that has not asked by then has lost the plugin."""
STABLE_SECONDS: Final = 30.0
SHORTEST_PAUSE_SECONDS: Final = 0.1
LONGEST_PAUSE_SECONDS: Final = 10.0


def plan_pause(failures: int) -> float:
    """How long to wait before the next registration, after a number of registrations that did not last."""
    return min(LONGEST_PAUSE_SECONDS, SHORTEST_PAUSE_SECONDS * 2.0 ** min(failures, 16))


def name_endpoint(endpoint: str, number: int) -> str:
    """The bare name of a resource's socket, another for each number: `nvidia-gpu.sock`, then `nvidia-gpu-2.sock`."""
    return endpoint if number == 1 else f"{endpoint.removesuffix('.sock')}-{number}.sock"


class PluginSession:
    """A resource, the socket beside the kubelet's, and the registration's state."""

    def __init__(
        self,
        plugin: DevicePlugin,
        directory: Path,
        endpoint: str,
        *,
        report: Callable[[AdvertisedResource], None],
        report_crash: CrashReporter,
        times: CallTimes | None = None,
        read_allocatable: ReadAllocatable | None = None,
    ) -> None:
        self._plugin, self._endpoint, self._report = plugin, endpoint, report
        self._read_allocatable = read_allocatable
        self._socket, self._kubelet_socket = directory / endpoint, directory / KUBELET_SOCKET_NAME
        self._server = PluginServer(plugin, report_crash, self._devices_sent, times)
        self._standing = AdvertisedResource(name=plugin.resource, socket=str(self._socket), registered=False)
        self._registered_once = False
        self._number = 1
        """The number of the socket's name; a name refused by the kubelet is followed by the next."""

    async def run(self, *, task_status: TaskStatus[None] = TASK_STATUS_IGNORED) -> None:
        """Offer the resource until cancelled; started at the first registration.

        Raises:
            SocketUnavailable: the plugin's socket cannot be opened beside the kubelet's.
        """
        kubelet = await wait_present(self._kubelet_socket)
        while True:
            async with self._server.serve(self._socket):
                kubelet = await self._keep_offered(kubelet, task_status)
            self._number += 1
            self._socket = self._socket.with_name(name_endpoint(self._endpoint, self._number))
            self._standing = replace(self._standing, socket=str(self._socket))

    async def _keep_offered(self, kubelet: FileIdentity, task_status: TaskStatus[None]) -> FileIdentity:
        """Register again after each end, until the kubelet refuses the socket's path; returns that kubelet."""
        failures = 0
        while True:
            began = time.monotonic()
            try:
                why = await self._offer(kubelet, task_status)
            except RegistrationRefused as refused:
                why = str(refused)
                if refused.is_path_spent:
                    self._say(registered=False, last_error=why)
                    return kubelet
            self._say(registered=False, last_error=why)
            failures = 0 if time.monotonic() - began >= STABLE_SECONDS else failures + 1
            with move_on_after(plan_pause(failures)):
                kubelet = await wait_present(self._kubelet_socket, other_than=kubelet)
                failures = 0
            kubelet = await wait_present(self._kubelet_socket)

    async def _offer(self, kubelet: FileIdentity, task_status: TaskStatus[None]) -> str:
        """Register with the present kubelet process and keep the registration; returns the reason for the end."""
        try:
            await self._server.end_streams()
            await self._mend_file()
            await register_plugin(self._kubelet_socket, self._plugin.resource, self._socket.name, self._plugin.options)
            self._say(registered=True, last_error="", contested="")
            if not self._registered_once:
                self._registered_once = True
                task_status.started()
            return await self._wait_end(kubelet)
        except RegistrationRefused:
            raise
        except (KubeletError, SocketUnavailable) as error:
            return str(error)

    async def _wait_end(self, kubelet: FileIdentity) -> str:
        with move_on_after(FIRST_STREAM_SECONDS):
            while not self._server.streaming:
                await self._server.wait_stream_change()
        check = ListCheck(self._plugin.resource, self._read_allocatable, self._list_others)
        while self._server.streaming:
            with move_on_after(until_beat(STANDING_POLL_SECONDS)):
                await self._server.wait_stream_change()
            if identify_file(self._kubelet_socket) not in {kubelet, None}:
                return "another kubelet process has taken over"
            if identify_file(self._socket) is None:
                await self._mend_file()
            verdict = await check.look(self._standing.devices)
            if verdict is ListVerdict.NONE:
                return "the kubelet has lost the list of devices, although it follows it"
            if check.take_abandoned():
                self._server.send_again()
            self._say(registered=True, last_error="", contested=self._find_contest(verdict))
        return "the kubelet does not follow the list of devices"

    def _find_contest(self, verdict: ListVerdict) -> str:
        """The sign that another plugin offers the same resource; empty without a sign."""
        if not self._server.file_is_ours:
            return f"another device plugin has put its socket in place of {self._socket}"
        if verdict is ListVerdict.ANOTHER:
            return f"the kubelet has {verdict.value} of {self._plugin.resource} than nodeagent has sent"
        return ""

    def _list_others(self) -> dict[Path, FileIdentity | None]:
        """The files beside the kubelet's socket that other plugins may listen at, our path too when taken over."""
        files = {path: identify_file(path) for path in self._socket.parent.iterdir()}
        if self._server.file_is_ours:
            files.pop(self._socket, None)
        return files

    async def _mend_file(self) -> None:
        if not self._server.file_is_ours:
            await self._server.listen_anew()

    def _devices_sent(self, devices: tuple[AdvertisedDevice, ...]) -> None:
        self._standing = replace(self._standing, devices=devices)
        self._report(self._standing)

    def _say(self, *, registered: bool, last_error: str, contested: str = "") -> None:
        standing = replace(self._standing, registered=registered, last_error=last_error, contested=contested)
        if standing != self._standing:
            self._standing = standing
            self._report(standing)
