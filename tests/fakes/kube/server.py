"""HTTP in front of the stand-in API server's objects: paths, forms, watches and refusals as the real one has them.

What it answers is compared with the real one in `tests/contract/apiserver`.
"""

import asyncio
import json
import socket
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Final, Self

import anyio
import anyio.lowlevel
from aiohttp import web

from tests.fakes.kube import refusals
from tests.fakes.kube.kinds import KINDS, Json, Kind, Place, Unreadable, find_place
from tests.fakes.kube.selection import Selection
from tests.fakes.kube.store import ObjectStore, Write
from tests.fakes.kube.watch import Watch, check_options, streams_list, wants_metadata, whole

if TYPE_CHECKING:
    from ssl import SSLContext

TOKEN: Final = "token-1"
STRANGER: Final = "token-of-nobody"
PACKED_FROM_BYTES: Final = 128 * 1024
WATCH_SECONDS: Final = "1800"
VERSION: Final = "v1.36.3"
_SERVED: Final = {kind.plural: kind for kind in KINDS}
_VERBS: Final = {"POST": "create", "PUT": "update", "PATCH": "patch", "DELETE": "delete"}


class KubeServer:
    """Objects behind a port on loopback; what a request is told instead is the business of who derives from it."""

    def __init__(self) -> None:
        self.store = ObjectStore()
        self.token: str | None = TOKEN
        """The administrator's; with `None` everybody is one."""
        self.stranger = STRANGER
        """Of somebody who is known and has no rights."""
        self.port = 0
        self.tls: SSLContext | None = None
        self.streams_lists = True
        """Whether the feature gate `WatchList` is on."""
        self.packs_anyway = False
        """Whether streamed lists are compressed even for who does not want that, as a proxy may do."""
        self.pace = 1.0
        """How long a second of a watch's time takes."""
        self._watches: set[asyncio.Task[object]] = set()
        self._limits: set[anyio.CancelScope] = set()
        self._runner: web.AppRunner | None = None
        self._listener: socket.socket | None = None

    @property
    def url(self) -> str:
        return f"http{'s' if self.tls else ''}://127.0.0.1:{self.port}"

    @property
    def watching(self) -> int:
        return len(self._watches)

    @property
    def version(self) -> int:
        return self.store.version

    @asynccontextmanager
    async def running(self) -> AsyncIterator[Self]:
        await self.start()
        try:
            yield self
        finally:
            await self.stop()

    async def start(self) -> None:
        application = web.Application()
        application.router.add_route("*", "/{path:.*}", self._serve)
        self._runner = web.AppRunner(application, shutdown_timeout=0.1, handler_cancellation=True)
        await self._runner.setup()
        self._listener = socket.create_server(("127.0.0.1", self.port))
        await web.SockSite(self._runner, self._listener, ssl_context=self.tls).start()
        self.port = self._runner.addresses[0][1]

    async def stop(self) -> None:
        assert self._runner is not None
        assert self._listener is not None
        self.drop_watches()
        with anyio.CancelScope(shield=True):
            asyncio.get_running_loop().remove_reader(self._listener)
            # The transport of a connection that was accepted just now is made in the next turn of the loop, and needs
            # the listener; the server knows of it in the turn after.
            for _ in range(2):
                await anyio.lowlevel.checkpoint()
            await self._runner.cleanup()

    def end_watches(self) -> None:
        """As when their time is over."""
        for limit in self._limits:
            limit.cancel()

    def drop_watches(self) -> None:
        """As when the way to the server breaks."""
        for task in self._watches:
            task.cancel()

    async def intercept(self, request: web.Request, path: str) -> web.StreamResponse | None:
        """What a request gets instead of an honest answer."""
        return None

    async def begin_watch(self, response: web.StreamResponse) -> bool:
        """Say something before all changes; False where that was all."""
        return True

    def may_tell(self) -> bool:
        """Whether watches may say what happened."""
        return True

    def finish(self, request: web.Request, answer: Json) -> Json:
        return answer

    async def _serve(self, request: web.Request) -> web.StreamResponse:
        path = "/" + request.match_info["path"]
        scripted = await self.intercept(request, path)
        if scripted is not None:
            return scripted
        try:
            return await self._answer(request, path)
        except refusals.Refused as refused:
            return web.json_response(refused.document, status=refused.code)

    async def _answer(self, request: web.Request, path: str) -> web.StreamResponse:
        word = request.headers.get("Authorization", "").removeprefix("Bearer ")
        if self.token is not None and word not in {self.token, self.stranger}:
            raise refusals.unauthorized()
        if path == "/version":
            return web.json_response({"major": "1", "minor": VERSION.split(".")[1], "gitVersion": VERSION})
        group = next((kind.group for kind in KINDS if kind.group and path == f"/apis/{kind.group}"), "")
        if group:
            return web.json_response(render_group(group))
        try:
            place = find_place(path, _SERVED)
        except LookupError:
            return web.Response(status=404, text="404 page not found\n")
        if place is None:
            raise refusals.unknown_resource()
        is_stranger = self.token is not None and word == self.stranger
        if place.kind.plural == "selfsubjectaccessreviews":
            review = json.loads(await request.read())
            return web.json_response(review | {"status": {"allowed": not is_stranger}}, status=201)
        if is_stranger:
            raise refusals.forbidden(place.kind, place.name, find_verb(request, place), place.namespace)
        if request.method == "GET":
            return await self._read(request, place)
        return await self._write(request, place)

    async def _read(self, request: web.Request, place: Place) -> web.StreamResponse:
        if place.name:
            return pack(request, whole(place.kind, self.store.find(place)))
        query = request.query
        try:
            selection = Selection(
                place.kind, place.namespace, query.get("fieldSelector", ""), query.get("labelSelector", "")
            )
        except Unreadable as error:
            raise refusals.unreadable(str(error)) from error
        if is_watch(request):
            return await self._watch(request, place, selection)
        limit, token = int(query.get("limit", "0")), query.get("continue", "")
        items, version, following = self.store.list_page(selection, place.kind.plural, limit, token)
        metadata = {"resourceVersion": version} | ({"continue": following} if following else {})
        return pack(request, render_list(place.kind, items, metadata, alone=wants_metadata(request)))

    async def _write(self, request: web.Request, place: Place) -> web.StreamResponse:
        try:
            body = json.loads(await request.read() or b"{}")
        except ValueError as error:
            raise refusals.unreadable(f"the object provided is unrecognized: {error}") from error
        write = Write(request.query.get("fieldManager", ""), request.content_type)
        self.store.is_rehearsal = request.query.get("dryRun") == "All"
        if request.method == "POST" and place.subresource in {"eviction", "binding"}:
            (self.store.evict if place.subresource == "eviction" else self.store.bind)(place, body)
            answer = {"kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Success", "code": 201}
            return web.json_response(self.finish(request, answer), status=201)
        if request.method == "DELETE":
            gone = whole(place.kind, self.store.delete(place, body))
            success = {"kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Success"}
            return web.json_response(gone if place.kind.plural in {"pods", "resourceslices"} else success)
        if request.method == "POST":
            answer = self.store.create(place, body, write)
        elif request.method == "PUT":
            answer = self.store.update(place, body)
        else:
            answer = self.store.patch(place, body, write)
        status = 201 if request.method == "POST" else 200
        return web.json_response(self.finish(request, whole(place.kind, answer)), status=status)

    async def _watch(self, request: web.Request, place: Place, selection: Selection) -> web.StreamResponse:
        check_options(request, streams_lists=self.streams_lists)
        response = web.StreamResponse(headers={"Content-Type": "application/json"})
        if streams_list(request) and (self.packs_anyway or "gzip" in request.headers.get("Accept-Encoding", "")):
            response.headers["Content-Encoding"] = "gzip"
        await response.prepare(request)
        task = asyncio.current_task()
        assert task is not None
        self._watches.add(task)
        try:
            watch = Watch(self.store, place.kind, selection, request, response, self.may_tell, self.begin_watch)
            seconds = float(request.query.get("timeoutSeconds", WATCH_SECONDS)) * self.pace
            with anyio.move_on_after(seconds) as limit:
                self._limits.add(limit)
                await watch.run(limit.deadline, self.pace)
            self._limits.discard(limit)
            return response
        finally:
            self._watches.discard(task)


def is_watch(request: web.Request) -> bool:
    return request.query.get("watch") == "1"


def find_verb(request: web.Request, place: Place) -> str:
    if request.method != "GET":
        return _VERBS[request.method]
    return "get" if place.name else "watch" if is_watch(request) else "list"


def render_list(kind: Kind, items: list[Json], metadata: Json, *, alone: bool) -> Json:
    """Objects of a list do not say what they are, and no metadata is null."""
    if alone:
        named = {"kind": "PartialObjectMetadataList", "apiVersion": "meta.k8s.io/v1", "metadata": metadata}
        return named | {"items": [{"metadata": each["metadata"]} for each in items] or None}
    bare = [{key: value for key, value in each.items() if key not in {"kind", "apiVersion"}} for each in items]
    return {"kind": f"{kind.kind}List", "apiVersion": kind.api_version, "metadata": metadata, "items": bare}


def render_group(group: str) -> Json:
    versions = sorted({kind.version for kind in KINDS if kind.group == group})
    named = [{"groupVersion": f"{group}/{version}", "version": version} for version in versions]
    return {"kind": "APIGroup", "apiVersion": "v1", "name": group, "versions": named, "preferredVersion": named[0]}


def pack(request: web.Request, document: Json) -> web.Response:
    """An answer, compressed where it is long and that is wanted."""
    response = web.json_response(document)
    assert isinstance(response.body, bytes)
    if len(response.body) > PACKED_FROM_BYTES and "gzip" in request.headers.get("Accept-Encoding", ""):
        response.enable_compression(web.ContentCoding.gzip)
    return response
