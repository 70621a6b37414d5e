"""The usage service of Tencent's gpu-manager, on addresses of its own, for former clients of gpu-manager.

Owns the answers, each made of the last measurement. Refuses to measure: clients may ask as often as they like.
"""

import socket
from collections.abc import Callable, Mapping
from contextlib import AsyncExitStack
from typing import Final, NamedTuple

import anyio
from anyio.abc import TaskStatus
from msgspec import json

from nodeagent.components.usage.graph import list_leaves, render_graph
from nodeagent.config.live import LiveSettings
from nodeagent.core.channels.bus import Bus
from nodeagent.core.log.lines import get_logger
from nodeagent.edge.gpu_manager.display_server import DisplayAnswers, serve_display
from nodeagent.edge.http.access import Access
from nodeagent.edge.http.capacity import Capacity
from nodeagent.edge.http.hosts import AllowedHosts
from nodeagent.edge.http.messages import Answer, Handler, Request, Response
from nodeagent.edge.http.routes import Route, Routes
from nodeagent.edge.http.server import HttpServer, ServerBounds
from nodeagent.model.display import ContainerStat
from nodeagent.model.fractions import FractionOffers
from nodeagent.model.gpu import Inventory
from nodeagent.model.journal import FractionTable
from nodeagent.model.telemetry import NodeSample
from nodeagent.model.usage import FractionUsage
from nodeagent.rules.fractions.display import describe_use

CAPACITY: Final = Capacity(32, 16)
"""Connections; they count into the reserved descriptors."""
_NO_GPUS: Final = Inventory(generation=0)


class ServiceAddress(NamedTuple):
    """The HTTP address of the service, and its access rules."""

    listener: socket.socket
    names: tuple[str, ...]
    """This machine's names, allowed as hosts of requests."""
    access: Access | None = None


class UsageService:
    """The component."""

    name = "usage_service"

    def __init__(
        self, bus: Bus, live: LiveSettings, *, version: str, metrics: Mapping[str, Handler], door: ServiceAddress | None
    ) -> None:
        """`metrics` answers by path."""
        self._bus, self._live, self._metrics, self._door = bus, live, metrics, door
        self._answers = DisplayAnswers(self._graph, self._usage, version)
        self._log = get_logger(component=self.name)

    async def run(self, *, task_status: TaskStatus[None]) -> None:
        """Serve until cancelled."""
        path = self._live.now.fractions.usage_socket
        async with AsyncExitStack() as stack:
            if self._door is not None:
                await stack.enter_async_context(self._open_http(self._door).serving(self._door.listener))
            if path is not None:
                await stack.enter_async_context(serve_display(path, self._answers, self._note_error))
            task_status.started()
            address = self._door.listener.getsockname() if self._door is not None else None
            self._log.info("usage_served", address=address, socket=str(path) if path is not None else None)
            await anyio.sleep_forever()

    def _open_http(self, door: ServiceAddress) -> HttpServer:
        hosts = AllowedHosts(door.names, self._live.now.http.allowed_hosts)
        return HttpServer(
            Routes(self.routes()),
            on_error=self._note_error,
            on_exhausted=lambda error: self._log.error("connection_not_taken", error=error),
            bounds=ServerBounds(connections=CAPACITY),
            hosts=lambda: hosts,
            access=door.access,
        )

    def routes(self) -> list[Route]:
        """The routes over HTTP."""
        return [
            Route("GET", "/graph", _answering(lambda: {"graph": self._graph()})),
            Route("GET", "/usage", _answering(lambda: {"usage": self._usage()})),
            Route("GET", "/version", _answering(lambda: {"version": self._answers.version})),
            *(Route("GET", path, handler) for path, handler in self._metrics.items()),
        ]

    def _graph(self) -> str:
        inventory = self._bus.read(Inventory) or _NO_GPUS
        table, offers = (
            self._bus.read(FractionTable) or FractionTable(),
            self._bus.read(FractionOffers) or FractionOffers(),
        )
        return render_graph(inventory, list_leaves(inventory, table, offers, self._bus.read(NodeSample)))

    def _usage(self) -> Mapping[str, ContainerStat]:
        usage = self._bus.read(FractionUsage) or FractionUsage()
        return {each.key: each.stat for each in describe_use(usage, self._bus.read(Inventory) or _NO_GPUS)}

    def _note_error(self, request: str, error: Exception) -> None:
        self._log.exception("request_failed", error, request=request)


def _answering(answer: Callable[[], object]) -> Handler:
    async def handle(_request: Request) -> Answer:
        return Response(json.encode(answer()) + b"\n", headers={"Cache-Control": "no-store"})

    return handle
