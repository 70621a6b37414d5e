"""Answers people, probes and scripts from the newest states on the bus.

Owns what is served where: everything that only looks, on TCP and on the admin socket; everything that changes
something, on the admin socket alone. Refuses to compute what another part should know: it shows the last word of each.
"""

import gzip
import os
import socket
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from typing import TypeVar

import anyio
from anyio.abc import TaskStatus
from msgspec import json

from nodeagent.components.web.admin import (
    ClearCommand,
    CommandDone,
    CommandMalformed,
    CrashCommand,
    FaultCommand,
    ReleaseCommand,
    describe_person,
    may_command,
    parse_command,
)
from nodeagent.components.web.api_index import INDEX
from nodeagent.components.web.assets import HEADERS as PAGE_HEADERS
from nodeagent.components.web.build import (
    Identity,
    Known,
    build_components,
    build_conditions,
    build_gates,
    build_state,
)
from nodeagent.components.web.detail_pages import is_page, render_path
from nodeagent.components.web.gpu_records import find_gpu_record
from nodeagent.components.web.health_text import render_readyz
from nodeagent.components.web.live_page import LivePage, LivePages
from nodeagent.components.web.openapi import DOCUMENT as OPENAPI
from nodeagent.components.web.page import Page, PageView, render_document
from nodeagent.components.web.records import GpusRecord, StateRecord
from nodeagent.components.web.stream import (
    KEEPALIVE,
    build_event,
    is_wanted,
    parse_last_seen,
    parse_types,
    render_event,
)
from nodeagent.components.web.trend import Trends
from nodeagent.config.live import LiveSettings
from nodeagent.edge.http.access import Access
from nodeagent.edge.http.messages import HTML, TEXT, Answer, Handler, Request, Response, Stream
from nodeagent.edge.http.routes import Route, Routes, render_problem
from nodeagent.edge.http.server import HttpServer, ServerLimits
from nodeagent.kernel.bus import Bus
from nodeagent.kernel.clock import Clock
from nodeagent.kernel.conditions import Conditions
from nodeagent.kernel.gates import Gates
from nodeagent.kernel.log import get_logger
from nodeagent.kernel.report import ComponentReport
from nodeagent.model.allocation import AllocationTable
from nodeagent.model.driver import DriverState
from nodeagent.model.errors import ControlRefused
from nodeagent.model.gpu import Inventory
from nodeagent.model.health import HealthReport
from nodeagent.model.labels import LabelState
from nodeagent.model.plugin import PluginState
from nodeagent.model.ports import AgentControl
from nodeagent.model.runtime import CdiState, RuntimeState
from nodeagent.model.telemetry import NodeSample

T = TypeVar("T")
KEEPALIVE_SECONDS = 15.0
GATHER_SECONDS = 0.25
"""What happens within this time reaches readers of the page together."""


class NodeView:
    """The newest word of every part, joined on demand."""

    def __init__(
        self,
        bus: Bus,
        gates: Gates,
        conditions: Conditions,
        clock: Clock,
        identity: Identity,
        reports: Callable[[], Sequence[ComponentReport]],
    ) -> None:
        self._bus, self._gates, self._conditions, self._clock = bus, gates, conditions, clock
        self._identity, self._reports = identity, reports

    @property
    def started_seconds(self) -> float:
        """When this agent began."""
        return self._identity.started_seconds

    def state(self) -> StateRecord:
        """The node now."""
        identity = self._identity
        return build_state(
            identity,
            self._known(),
            build_gates(self._gates.states(), identity.vital_gates),
            build_components(self._reports()),
            build_conditions(self._conditions.active()),
            now_seconds=self._clock.wall(),
        )

    def _known(self) -> Known:
        return Known(
            driver=self._latest(DriverState),
            inventory=self._latest(Inventory),
            sample=self._latest(NodeSample),
            health=self._latest(HealthReport),
            plugin=self._latest(PluginState),
            runtime=self._latest(RuntimeState),
            cdi=self._latest(CdiState),
            allocations=self._latest(AllocationTable),
            labels=self._latest(LabelState),
        )

    def _latest(self, state: type[T]) -> T | None:
        envelope = self._bus.latest(state)
        return envelope.value if envelope is not None else None


class WebComponent:
    """Serves the endpoints on the listeners it is given."""

    name = "web"

    def __init__(
        self,
        bus: Bus,
        view: NodeView,
        control: AgentControl,
        live: LiveSettings,
        *,
        public: socket.socket,
        admin: socket.socket,
        metrics: Handler,
        introspect: Callable[[], object],
        list_history: Callable[[], object],
        access: Access | None = None,
    ) -> None:
        self._bus, self._view, self._control, self._live = bus, view, control, live
        self._public, self._admin, self._access = public, admin, access
        self._metrics, self._introspect, self._list_history = metrics, introspect, list_history
        self._streams = 0
        self._trends = Trends()
        self._pages = LivePages(self._render_path, f"{os.getpid()}.{view.started_seconds:.0f}")
        self._pages_updated = anyio.Event()
        self._stopping = anyio.Event()
        self._log = get_logger(component=self.name)

    async def run(self, *, task_status: TaskStatus[None]) -> None:
        """Serve until cancelled."""
        public = HttpServer(
            Routes(self._looking()), on_error=self._note_error, limits=self._read_limits, access=self._access
        )
        admin = HttpServer(
            Routes([*self._looking(), *self._changing()]), on_error=self._note_error, limits=self._read_limits
        )
        async with public.serving(self._public), admin.serving(self._admin):
            task_status.started()
            try:
                await self._keep_pages()
            finally:
                self._stopping.set()
                self._pages_updated.set()

    async def _keep_pages(self) -> None:
        """Remember the last minutes, and render anew what somebody reads."""
        with self._bus.tap(client="status pages") as tap:
            async for envelope in tap:
                self._note_sample(envelope.value)
                await anyio.sleep(GATHER_SECONDS)
                while (more := tap.take_nowait()) is not None:
                    self._note_sample(more.value)
                self._pages.update()
                self._pages_updated.set()
                self._pages_updated = anyio.Event()

    def _note_sample(self, value: object) -> None:
        if isinstance(value, NodeSample):
            self._trends.add(value)

    def _read_limits(self) -> ServerLimits:
        http = self._live.now.http
        return ServerLimits(
            read_seconds=http.read_timeout_seconds,
            write_seconds=http.write_timeout_seconds,
            body_bytes_max=http.max_request_bytes,
        )

    def _note_error(self, request: str, error: Exception) -> None:
        self._log.exception("request_failed", error, request=request)

    # What only looks ---------------------------------------------------------------------------------------------

    def _looking(self) -> list[Route]:
        state = self._view.state
        whole: dict[str, Callable[[], Answer]] = {
            "/livez": _alive,
            "/healthz": _alive,
            "/readyz": self._readyz,
            "/api/v1": lambda: _json(INDEX),
            "/api/v1/": lambda: _json(INDEX),
            "/api/v1/state": lambda: _json(state()),
            "/api/v1/gpus": lambda: _json(state().gpus or GpusRecord(generation=0)),
            "/api/v1/allocations": lambda: _json(state().allocations),
            "/api/v1/labels": lambda: _json(state().labels),
            "/api/v1/conditions": lambda: _json(state().conditions),
            "/api/v1/components": lambda: _json(state().components),
            "/api/v1/gates": lambda: _json(state().gates),
            "/api/v1/driver": lambda: _json(state().driver),
            "/api/v1/openapi.json": lambda: _json(OPENAPI),
            "/api/v1/allocations/history": lambda: _json(self._list_history()),
            "/api/v1/debug": lambda: _json(self._introspect()),
        }
        return [
            *(Route("GET", path, _answering(answer)) for path, answer in whole.items()),
            *(Route("GET", path, self._page) for path in ("/", "/gpus/{name}", "/pods/{namespace}/{name}")),
            Route("GET", "/live", self._live_page),
            Route("GET", "/metrics", self._metrics, at_most=lambda: self._live.now.http.max_concurrent_scrapes),
            Route("GET", "/api/v1/gpus/{name}", self._gpu),
            Route("GET", "/api/v1/events", self._events),
        ]

    def _readyz(self) -> Answer:
        state = self._view.state()
        text = render_readyz(
            ready=state.ready, gates=state.gates, components=state.components, conditions=state.conditions
        )
        return Response(text.encode(), status=200 if state.ready else 503, content_type=TEXT)

    def _render_path(self, path: str) -> Page | None:
        view = PageView(state=self._view.state(), trend=self._trends.points(), history=self._bus.history())
        return render_path(path, view)

    async def _page(self, request: Request) -> Answer:
        live = self._pages.load(request.path)
        if live is None:
            return render_problem(404, f"no page at {request.path}", "/ is the whole node")
        return _html(live, request)

    async def _live_page(self, request: Request) -> Answer:
        if self._streams >= self._live.now.http.max_event_streams:
            return render_problem(503, "too many event streams", "http.max_event_streams says how many are served")
        path = request.query.get("page", "/")
        if not is_page(path):
            return render_problem(404, f"no page at {path}", "?page= takes the path of a page")
        return Stream(self._follow_page(path, request.headers.get("last-event-id") or request.query.get("since", "")))

    async def _follow_page(self, path: str, seen: str) -> AsyncIterator[bytes]:
        live = self._pages.follow(path)
        assert live is not None, "looked at before the stream was begun"
        self._streams += 1
        try:
            yield KEEPALIVE
            while not self._stopping.is_set():
                if live.version != seen:
                    yield live.render_since(seen)
                    seen = live.version
                updated = self._pages_updated
                with anyio.move_on_after(KEEPALIVE_SECONDS) as waited:
                    await updated.wait()
                if waited.cancelled_caught:
                    yield KEEPALIVE
        finally:
            self._streams -= 1
            self._pages.leave(path)

    async def _gpu(self, request: Request) -> Answer:
        name = request.arguments["name"]
        records = self._view.state().gpus
        record = find_gpu_record(records, name) if records is not None else None
        if record is None:
            return render_problem(404, f"no GPU {name}", "by UUID, index or PCI address; see /api/v1/gpus")
        return _json(record)

    async def _events(self, request: Request) -> Answer:
        types, last_seen = parse_types(request.query), parse_last_seen(request.headers, request.query)
        if request.query.get("follow", "true") == "false":
            events = [
                build_event(envelope)
                for envelope in self._bus.history()
                if is_wanted(type(envelope.value).__name__, types) and envelope.seq > (last_seen or 0)
            ]
            return _json(events)
        if self._streams >= self._live.now.http.max_event_streams:
            return render_problem(503, "too many event streams", "http.max_event_streams says how many are served")
        return Stream(self._follow(types, last_seen))

    async def _follow(self, types: frozenset[str] | None, last_seen: int | None) -> AsyncIterator[bytes]:
        self._streams += 1
        try:
            with self._bus.tap(client=f"event stream {self._streams}") as tap:
                newest = 0
                yield KEEPALIVE
                for envelope in self._bus.history() if last_seen is not None else ():
                    newest = envelope.seq
                    if newest > (last_seen or 0) and is_wanted(type(envelope.value).__name__, types):
                        yield render_event(build_event(envelope))
                while not self._stopping.is_set():
                    item = None
                    with anyio.move_on_after(KEEPALIVE_SECONDS):
                        item = await anext(tap)
                    if item is None:
                        yield KEEPALIVE
                    elif item.seq > newest and is_wanted(type(item.value).__name__, types):
                        yield render_event(build_event(item))
        finally:
            self._streams -= 1

    # What changes something --------------------------------------------------------------------------------------

    def _changing(self) -> list[Route]:
        commands: dict[str, Callable[[Request], Awaitable[str]]] = {
            "/api/v1/reload": lambda _request: self._control.reload(),
            "/api/v1/faults": self._fault,
            "/api/v1/crash": self._crash,
            "/api/v1/release": self._release,
            "/api/v1/resume": lambda _request: self._control.resume(),
            "/api/v1/clear": self._clear,
        }
        return [Route("POST", path, self._command(act)) for path, act in commands.items()]

    def _command(self, act: Callable[[Request], Awaitable[str]]) -> Handler:
        async def answer(request: Request) -> Answer:
            if not may_command(request.peer.uid, os.geteuid()):
                return render_problem(403, "not allowed", f"uid {request.peer.uid} may not change anything")
            try:
                done = await act(request)
            except CommandMalformed as error:
                return render_problem(400, str(error), "see /api/v1/ for what each command takes")
            except ControlRefused as error:
                return render_problem(409, str(error))
            self._log.info("command_done", command=request.path, uid=request.peer.uid, pid=request.peer.pid, done=done)
            return _json(CommandDone(done=done))

        return answer

    async def _fault(self, request: Request) -> str:
        command = parse_command(request.body, FaultCommand)
        return await self._control.inject_fault(command.fault, command.arguments)

    async def _crash(self, request: Request) -> str:
        command = parse_command(request.body, CrashCommand)
        return await self._control.crash_component(command.component, command.reason)

    async def _release(self, request: Request) -> str:
        command = parse_command(request.body, ReleaseCommand)
        return await self._control.release(command.reason, command.seconds)

    async def _clear(self, request: Request) -> str:
        command = parse_command(request.body, ClearCommand)
        if not command.reason.strip():
            raise CommandMalformed("a GPU is cleared for a reason, and it is empty")
        who = describe_person(command.who, request.peer.uid, request.peer.pid)
        return await self._control.clear_gpu(command.gpu, command.reason, who)


def _json(value: object) -> Response:
    return Response(json.encode(value) + b"\n", headers={"Cache-Control": "no-store"})


def _html(live: LivePage, request: Request) -> Response:
    body = render_document(live.page, live.version).encode()
    headers = {**PAGE_HEADERS, "Vary": "Accept-Encoding"}
    if "gzip" in request.headers.get("accept-encoding", ""):
        body = gzip.compress(body, compresslevel=1, mtime=0)
        headers["Content-Encoding"] = "gzip"
    return Response(body, status=live.page.status, content_type=HTML, headers=headers)


def _alive() -> Answer:
    # That this line is reached is the heartbeat of the event loop: nothing else decides liveness.
    return Response(b"alive\n", content_type=TEXT)


def _answering(answer: Callable[[], Answer]) -> Handler:
    async def handle(_request: Request) -> Answer:
        return answer()

    return handle
