"""Keeps a claim driver registered at the kubelet: the serving socket first, then the registration socket.

The kubelet keeps a connection for all calls and registers the driver again after a restart of the kubelet. The kubelet
does not see a removed socket file: the session notices the removal and puts the file back.
Two agents may be registered at a time, each with separate sockets; the kubelet asks the newest agent, and each agent
removes only its own sockets.
"""

from collections.abc import Callable
from pathlib import Path

from anyio import sleep

from nodeagent.core.life.ticker import until_beat
from nodeagent.edge.grpc.calls import CrashReporter
from nodeagent.edge.grpc.errors import SocketUnavailable
from nodeagent.edge.grpc.server import GrpcServer, open_grpc_server
from nodeagent.edge.grpc.unix_socket import identify_file
from nodeagent.edge.kubelet.call_times import CallTimes
from nodeagent.edge.kubelet.claim_server import PLUGIN_TYPE, VERSIONS, ClaimServer
from nodeagent.edge.kubelet.registration import PluginCard, Registration
from nodeagent.edge.kubelet.socket_watch import STANDING_POLL_SECONDS, wait_present
from nodeagent.model.claims import ClaimStanding
from nodeagent.model.ports import ClaimDriver


class ClaimSession:
    """A driver, the serving socket, and the registration socket."""

    def __init__(
        self,
        driver: ClaimDriver,
        name: str,
        serving_socket: Path,
        registration_socket: Path,
        *,
        report: Callable[[ClaimStanding], None],
        report_crash: CrashReporter,
        times: CallTimes | None = None,
    ) -> None:
        self._name, self._report, self._report_crash = name, report, report_crash
        self._serving_socket, self._registration_socket = serving_socket, registration_socket
        self._server = ClaimServer(driver, name, times)
        card = PluginCard(PLUGIN_TYPE, name, serving_socket, VERSIONS)
        self._registration = Registration(card, self._take_status)

    async def run(self, opened: Callable[[], None]) -> None:
        """Serve the kubelet until cancelled; `opened` is called when the kubelet can find the driver."""
        self._say(is_registered=False, error="")
        await wait_present(self._registration_socket.parent)
        self._make_folder()
        async with open_grpc_server(self._serving_socket, self._server.methods(), self._report_crash) as serving:
            while True:
                async with self._registration.open(self._registration_socket, self._report_crash) as registration:
                    opened()
                    await self._wait_lost(serving, registration)
                self._say(is_registered=False, error="a socket was removed, and is put back")
                await wait_present(self._registration_socket.parent)
                if not serving.owns_file():
                    self._make_folder()
                    await serving.listen()

    async def _wait_lost(self, *servers: GrpcServer) -> None:
        """Return when a socket file of ours is gone, with no other driver's file in its place."""
        while True:
            lost = [server for server in servers if not server.owns_file()]
            taken = [server.path for server in lost if identify_file(server.path) is not None]
            if taken:
                self._say(is_registered=False, error=f"another driver has put its socket in place of {taken[0]}")
            elif lost:
                return
            await sleep(until_beat(STANDING_POLL_SECONDS))

    def _make_folder(self) -> None:
        folder = self._serving_socket.parent
        try:
            folder.mkdir(mode=0o750, parents=True, exist_ok=True)
        except OSError as error:
            raise SocketUnavailable(str(self._serving_socket), error.strerror or str(error)) from error

    def _take_status(self, is_registered: bool, error: str) -> None:  # noqa: FBT001  # as the kubelet says it
        self._say(is_registered=is_registered, error=error)

    def _say(self, *, is_registered: bool, error: str) -> None:
        self._report(
            ClaimStanding(
                driver=self._name, socket=str(self._serving_socket), registered=is_registered, last_error=error
            )
        )
