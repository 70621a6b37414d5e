"""Answers people, probes and scripts from the newest states on the bus.

Owns the routes: reads on TCP and on the admin socket, changes on the admin socket alone. Refuses to compute the
states of other components: the last published value is shown.
"""

import gzip
import os
import socket
from collections.abc import AsyncIterator, Callable, Sequence
from typing import Any, NamedTuple

import anyio
import anyio.lowlevel
from anyio.abc import TaskStatus
from msgspec import DecodeError, json

from nodeagent.components.web.api.admin import CommandDone, CommandMalformed, may_command, parse_command
from nodeagent.components.web.api.claims import record_slices
from nodeagent.components.web.api.gpu_records import find_gpu_record
from nodeagent.components.web.api.index import INDEX
from nodeagent.components.web.api.latest import list_records
from nodeagent.components.web.api.openapi import build_openapi
from nodeagent.components.web.api.records import SIMULATED_HEADER, EventRecord, record_layouts
from nodeagent.components.web.api.stream import (
    KEEPALIVE,
    EventQuery,
    QueryMalformed,
    build_event,
    parse_query,
    render_event,
)
from nodeagent.components.web.assets import HEADERS as PAGE_HEADERS
from nodeagent.components.web.event_store import decode_events, encode_events
from nodeagent.components.web.health_text import render_readyz
from nodeagent.components.web.page.details import is_page, render_steps
from nodeagent.components.web.page.event_words import Teller
from nodeagent.components.web.page.live import LivePage, LivePages
from nodeagent.components.web.page.overview import render_document
from nodeagent.components.web.view import NodeView
from nodeagent.config.live import LiveSettings
from nodeagent.core.channels.bus import Bus
from nodeagent.core.conditions import Conditions
from nodeagent.core.life.orders import OrderHandlers
from nodeagent.core.life.ticker import until_beat
from nodeagent.core.log.lines import get_logger
from nodeagent.edge.host.files.sealed_store import SealedStore
from nodeagent.edge.http.access import Access
from nodeagent.edge.http.capacity import ADMIN_CONNECTIONS, Capacity
from nodeagent.edge.http.hosts import AllowedHosts
from nodeagent.edge.http.messages import HTML, TEXT, Answer, Handler, Request, Response, Stream
from nodeagent.edge.http.routes import Route, Routes, render_problem
from nodeagent.edge.http.server import HttpServer, ServerBounds, ServerLimits
from nodeagent.model.errors import ControlRefused
from nodeagent.model.orders import ORDERS, Order
from nodeagent.model.slices import PublishedSlices, SliceContent

KEEPALIVE_SECONDS = 15.0
PAGES = ("/", "/gpus/{name}", "/pods/{namespace}/{name}", "/conditions/{code}")
KEEP_SECONDS = 30.0
"""How often events are stored; newer events are lost with a power cut or a kill."""
GATHER_SECONDS = 0.25
"""Changes within this time reach readers of the page together."""


class Listening(NamedTuple):
    """The sockets, and who may connect to them."""

    public: socket.socket
    admin: socket.socket
    names: Sequence[str]
    """This machine's names, accepted in the Host header."""
    capacity: Capacity
    access: Access | None = None


class Sources(NamedTuple):
    """Answers that come from elsewhere than the newest states."""

    metrics: Handler
    introspect: Callable[[], object]
    list_history: Callable[[], object]
    list_receipts: Callable[[], object]
    list_slices: Callable[[], Sequence[SliceContent]]


class WebComponent:
    """Serves the endpoints on the given listeners."""

    name = "web"

    def __init__(
        self,
        bus: Bus,
        view: NodeView,
        orders: OrderHandlers,
        live: LiveSettings,
        listening: Listening,
        sources: Sources,
        conditions: Conditions,
        past: SealedStore,
    ) -> None:
        self._bus, self._view, self._orders, self._live = bus, view, orders, live
        self._listening, self._sources = listening, sources
        self._hosts = AllowedHosts(listening.names, live.now.http.allowed_hosts)
        self._conditions, self._store = conditions, past
        self._written = 0
        self._streams = 0
        self._pages = LivePages(lambda path: render_steps(path, view.page()), view.epoch)
        self._pages_updated = anyio.Event()
        self._stopping = anyio.Event()
        self._log = get_logger(component=self.name)

    async def run(self, *, task_status: TaskStatus[None]) -> None:
        """Serve until cancelled."""
        profile = self._live.now.gpus.simulated_profile
        headers = {SIMULATED_HEADER: profile} if profile else {}
        public = HttpServer(
            Routes(self._looking()),
            on_error=self._note_error,
            on_exhausted=self._note_exhausted,
            bounds=ServerBounds(self._read_limits, self._listening.capacity),
            hosts=self._read_hosts,
            access=self._listening.access,
            headers=headers,
        )
        admin = HttpServer(
            Routes([*self._looking(), *self._changing()]),
            on_error=self._note_error,
            on_exhausted=self._note_exhausted,
            bounds=ServerBounds(self._read_limits, Capacity(ADMIN_CONNECTIONS, ADMIN_CONNECTIONS)),
            headers=headers,
        )
        async with public.serving(self._listening.public), admin.serving(self._listening.admin):
            task_status.started()
            try:
                async with anyio.create_task_group() as tasks:
                    tasks.start_soon(self._store_events, name="web past")
                    await self._keep_pages()
            finally:
                self._stopping.set()
                self._pages_updated.set()

    async def _store_events(self) -> None:
        """Read the last agent's events, and store new events for the next agent."""
        try:
            self._view.note_stored_events(await self._read_stored_events())
            while True:
                await anyio.sleep(until_beat(KEEP_SECONDS))
                await self._write_stored_events()
        finally:
            with anyio.CancelScope(shield=True):
                await self._write_stored_events()
            self._store.close()

    async def _read_stored_events(self) -> tuple[EventRecord, ...]:
        stored = await self._store.read()
        troubles, events = list(stored.troubles), tuple[EventRecord, ...]()
        if stored.body is not None:
            try:
                events = decode_events(stored.body)
            except DecodeError as error:
                reason = f"cannot read the stored events: {error}: they are moved aside"
                troubles.append(await self._store.discard(reason))
        if troubles:
            self._log.warning("stored_events_unusable", troubles=troubles)
            self._conditions.set("events-lost", detail="; ".join(troubles))
        return events

    async def _write_stored_events(self) -> None:
        """Store all events, if any but readings came since the last time."""
        newest = self._view.find_newest()
        if newest == self._written:
            return
        trouble = await self._store.write(encode_events(self._view.events()))
        if trouble:  # pragma: no cover - tested; Python 3.11 traces no frame that an exception resumes
            self._log.warning("events_not_stored", reason=trouble)
        else:
            self._written = newest

    async def _keep_pages(self) -> None:
        """Record the last minutes, and render pages with readers anew."""
        with self._bus.tap(client="status pages") as tap:
            async for envelope in tap:
                self._view.note(envelope.value)
                await anyio.sleep(until_beat(GATHER_SECONDS))
                while (more := tap.take_nowait()) is not None:
                    self._view.note(more.value)
                for _ in self._pages.update():
                    await anyio.lowlevel.checkpoint()
                self._pages_updated.set()
                self._pages_updated = anyio.Event()

    def _read_limits(self) -> ServerLimits:
        http = self._live.now.http
        return ServerLimits(
            read_seconds=http.read_timeout_seconds,
            write_seconds=http.write_timeout_seconds,
            body_bytes_max=http.max_request_bytes,
        )

    def _read_hosts(self) -> AllowedHosts:
        configured = self._live.now.http.allowed_hosts
        if configured != self._hosts.configured:
            self._hosts = AllowedHosts(self._listening.names, configured)
        return self._hosts

    def _note_error(self, request: str, error: Exception) -> None:
        self._log.exception("request_failed", error, request=request)

    def _note_exhausted(self, error: OSError) -> None:
        self._log.error("connection_not_taken", error=error)

    # Reading -----------------------------------------------------------------------------------------------------

    def _looking(self) -> list[Route]:
        told = list_records(self._bus.read, self._view.state, self._conditions.active)
        whole: dict[str, Callable[[], Answer]] = {
            "/livez": _alive,
            "/healthz": _alive,
            "/readyz": self._readyz,
            "/api/v1": lambda: _json(INDEX),
            "/api/v1/": lambda: _json(INDEX),
            **{path: _telling(tell) for path, tell in told.items()},
            "/api/v1/openapi.json": lambda: _json(build_openapi()),
            "/api/v1/allocations/history": lambda: _json(self._sources.list_history()),
            "/api/v1/receipts": lambda: _json(self._sources.list_receipts()),
            "/api/v1/slices": lambda: _json(
                record_slices(self._bus.read(PublishedSlices), self._sources.list_slices())
            ),
            "/api/v1/layouts": lambda: _json(record_layouts(self._live.now.mig)),
            "/api/v1/debug": lambda: _json(self._sources.introspect()),
        }
        return [
            *(Route("GET", path, _answering(answer)) for path, answer in whole.items()),
            *(Route("GET", path, self._page) for path in PAGES),
            Route("GET", "/live", self._live_page),
            Route("GET", "/metrics", self._sources.metrics, at_most=lambda: self._live.now.http.max_concurrent_scrapes),
            Route("GET", "/api/v1/gpus/{name}", self._gpu),
            Route("GET", "/api/v1/events", self._events),
        ]

    def _readyz(self) -> Answer:
        state = self._view.state()
        return Response(render_readyz(state).encode(), status=200 if state.ready else 503, content_type=TEXT)

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
        try:
            query = parse_query(request.headers, request.query)
        except QueryMalformed as error:
            return render_problem(400, str(error), "see /api/v1/openapi.json")
        if not query.is_followed:
            return _json(query.select(self._view.events()))
        if self._streams >= self._live.now.http.max_event_streams:
            return render_problem(503, "too many event streams", "http.max_event_streams says how many are served")
        return Stream(self._follow(query))

    async def _follow(self, query: EventQuery) -> AsyncIterator[bytes]:
        self._streams += 1
        try:
            with self._bus.tap(client=f"event stream {self._streams}") as tap:
                newest, teller = 0, Teller(self._view.names())
                yield KEEPALIVE
                for envelope in self._bus.history():
                    newest, event = envelope.seq, build_event(envelope, teller)
                    if query.misses(event):
                        yield render_event(event)
                said_at = anyio.current_time()
                while not self._stopping.is_set():
                    item, line = None, b""
                    with anyio.move_on_after(KEEPALIVE_SECONDS):
                        item = await anext(tap)
                    if item is not None and item.seq > newest and query.wants(item.type_name):
                        teller.names = self._view.names()
                        line = render_event(build_event(item, teller))
                    # Unwanted events keep coming too; a reader needs a sign of life all the same.
                    elif anyio.current_time() - said_at >= KEEPALIVE_SECONDS:
                        line = KEEPALIVE
                    if line:
                        said_at = anyio.current_time()
                        yield line
        finally:
            self._streams -= 1

    # Changes -----------------------------------------------------------------------------------------------------

    def _changing(self) -> list[Route]:
        return [Route("POST", order.path, self._answer_order(order)) for order in ORDERS]

    def _answer_order(self, order: Order[Any]) -> Handler:
        async def answer(request: Request) -> Answer:
            peer = request.peer
            if not may_command(peer.uid, os.geteuid()):
                return render_problem(403, "not allowed", f"uid {peer.uid} may not change anything")
            try:
                done = await self._orders.give(order, parse_command(order, request.body, peer.uid, peer.pid))
            except CommandMalformed as error:
                return render_problem(400, str(error), "see /api/v1/ for what each command takes")
            except ControlRefused as error:
                return render_problem(409, str(error))
            self._log.info("command_done", command=request.path, uid=peer.uid, pid=peer.pid, done=done)
            return _json(CommandDone(done=done))

        return answer


def _json(value: object) -> Response:
    return Response(json.encode(value) + b"\n", headers={"Cache-Control": "no-store"})


def _telling(tell: Callable[[], object]) -> Callable[[], Answer]:
    return lambda: _json(tell())


def _html(live: LivePage, request: Request) -> Response:
    body = render_document(live.page, live.version).encode()
    headers = {**PAGE_HEADERS, "Vary": "Accept-Encoding"}
    if "gzip" in request.headers.get("accept-encoding", ""):
        body = gzip.compress(body, compresslevel=1, mtime=0)
        headers["Content-Encoding"] = "gzip"
    return Response(body, status=live.page.status, content_type=HTML, headers=headers)


def _alive() -> Answer:
    # Reaching this line is the heartbeat of the event loop: nothing else decides liveness.
    return Response(b"alive\n", content_type=TEXT)


def _answering(answer: Callable[[], Answer]) -> Handler:
    async def handle(_request: Request) -> Answer:
        return answer()

    return handle
